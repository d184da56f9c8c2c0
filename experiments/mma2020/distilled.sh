#!/usr/bin/env bash
# The corpus of part two's streaming models: every training pair twice, once with the released
# translation, once with that of part one's offline model (where it wrote <unk>: the released one).
#   experiments/mma2020/distilled.sh RELEASED PREPARED [TEACHER]
# RELEASED: folder of train.en.xz and the others. PREPARED: folder of iwslt15-bpe16k; the new one,
# iwslt15-bpe16k-distilled, lies beside it. TEACHER: its final folder, unless PREPARED/distilled.vi
# is there already.
set -eu
released=$1 prepared=$2 own=$2/distilled.vi
if [ -n "${3:-}" ]; then
    simultan distill "$3" --source "$released/train.en.xz" --out "$own" --rows 32
fi
[ "$(wc -l < "$own")" = "$(xz -dc "$released/train.vi.xz" | wc -l)" ] || {
    echo "$own has not as many lines as train.vi.xz: run it again with a teacher" >&2 && exit 1
}
xz -dc "$released/train.vi.xz" | paste -d '\t' - "$own" |
    awk -F '\t' '{ print ($2 == "" || index($2, "<unk>")) ? $1 : $2 }' > "$own.whole"
simultan prepare --like "$prepared/iwslt15-bpe16k" --out "$prepared/iwslt15-bpe16k-distilled" \
    --source-language en --target-language vi \
    --source "$released/train.en.xz" --target "$released/train.vi.xz" \
    --source "$released/train.en.xz" --target "$own.whole" \
    --valid-source "$released/valid.en.xz" --valid-target "$released/valid.vi.xz" \
    --test-source "$released/test.en.xz" --test-target "$released/test.vi.xz"
