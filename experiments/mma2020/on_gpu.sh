#!/usr/bin/env bash
# A part of the plan on a machine that keeps nothing: what was found goes to $OUT as one archive,
# to be unpacked in this folder. Run again, it goes on where it stopped.
#   experiments/mma2020/on_gpu.sh [NAMES [MINUTES [TRAIN_MINUTES [MORE OPTIONS ...]]]]
# DATA: folder of the prepared corpora (runs). WORK: checkpoints. REVISION: of the code. COMPILED: folder
# of compiled code that is kept; with it a fresh machine has less to compile.
set -u
cd "$(dirname "$0")/../.."
names=${1:-} minutes=${2:-8.7} train=${3:-${2:-8.7}}
export PYTHONPATH=src:. PYTHONUNBUFFERED=1
if [ -z "${WORK:-}" ]; then
    # in memory where there is enough of it: saving must not hold up the device
    free=$(df --output=avail -k /dev/shm 2> /dev/null | tail -1)
    if [ "${free:-0}" -gt 50000000 ]; then WORK=/dev/shm/mma2020; else WORK=work/mma2020; fi
fi
mkdir -p "$WORK/results" "${OUT:=.}"
cp -n experiments/mma2020/results/*.json "$WORK/results/" 2> /dev/null # has a result: is skipped
cp -n experiments/mma2020/RUNS.md "$WORK/" 2> /dev/null

pack() {
    (cd "$WORK" && tar -cf .found.tar $(ls -d results predictions RUNS.md errors trained 2> /dev/null))
    cp "$WORK/.found.tar" "$OUT/.found.tar" && mv "$OUT/.found.tar" "$OUT/mma2020.tar"
    cp "$WORK/log.txt" "$OUT/log.txt"
}

python3 -X faulthandler -m experiments.harness mma2020 --only "$names" --data "${DATA:-runs}" \
    --out "$WORK" --results "$WORK" --minutes "$minutes" --train-minutes "$train" --jobs -1 \
    --revision "${REVISION:-}" ${COMPILED:+--compiled "$COMPILED"} "${@:4}" >> "$WORK/log.txt" 2>&1 &
runner=$!
tail -f -n +1 --pid=$runner "$WORK/log.txt" | grep --line-buffered -E '^\[|^valid|FAILED|^(done|left|failed|skipped) |Error' &
while kill -0 $runner 2> /dev/null; do # a call that is cut off still brings back what it has
    for _ in $(seq 60); do kill -0 $runner 2> /dev/null || break; sleep 0.5; done
    pack
done
wait $runner
code=$?
pack
exit $code
