// Latency of what was written so far: average lagging and words a second.

/** AL of one sentence: words behind an ideal writer; delays count words of this sentence. */
export function averageLagging(delays, sourceLength) {
  if (!delays.length || !sourceLength) return 0;
  const step = sourceLength / delays.length;
  let sum = 0;
  for (let i = 0; i < delays.length; i++) {
    sum += delays[i] - i * step;
    if (delays[i] >= sourceLength) return sum / (i + 1);
  }
  return sum / delays.length;
}

/** The mean over sentences that have begun; an open one counts up to the last word it needed. */
export function runningLagging(sentences) {
  const values = [];
  for (const { delays, length } of sentences) {
    if (delays.length) values.push(averageLagging(delays, length ?? Math.max(...delays)));
  }
  return values.length ? values.reduce((a, b) => a + b) / values.length : null;
}

/** Words a second over the last seconds, from the moments (in ms) they were written. */
export function writingRate(times, now, span = 10_000) {
  let first = times.length;
  while (first > 0 && now - times[first - 1] <= span) first--;
  const count = times.length - first;
  if (!count) return 0;
  return count / (Math.max(1_000, Math.min(span, now - times[0])) / 1_000);
}
