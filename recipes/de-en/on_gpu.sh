#!/usr/bin/env bash
# The recipe on a machine with a GPU that keeps nothing, in stages that each take some minutes:
#   recipes/de-en/on_gpu.sh STAGE...
#     unpack   work/de-en and the test sets, from the parts of PARTS (see README.md)
#     offline  train it
#     mma-il   train it; the CPU measures offline meanwhile
#     wait-k   train it; the CPU measures mma-il meanwhile, and wait-k after it
# What is to be kept goes to $OUT: logs, measurements, and each model as int8 in pieces of 15 MiB
# (cat NAME.tar.* | tar x). A stage that runs out of time ships the mean of its last checkpoints.
# LIMIT: seconds a training may take. SET: more options of `simultan train`. WORK: for all else.
set -u
cd "$(dirname "$0")/../.."
export PYTHONPATH=src PYTHONUNBUFFERED=1
: "${OUT:=runs/de-en/out}" "${LIMIT:=500}" "${SET:=}" "${PARTS:=runs/de-en}" "${DEVICE:=cuda}"
: "${PYTHON:=python3}"
if [ -z "${WORK:-}" ]; then # in memory where there is enough: saving must not hold up the GPU
    free=$(df --output=avail -k /dev/shm 2> /dev/null | tail -1)
    if [ "${free:-0}" -gt 50000000 ]; then WORK=/dev/shm/de-en; else WORK=work/de-en-runs; fi
fi
tests=${TESTS:-$WORK/tests}
mkdir -p "$OUT" "$WORK/model" "$WORK/ship" "$WORK/measured"
simultan() { $PYTHON -m simultan.cli "$@"; }

unpack() {
    mkdir -p work "$tests"
    cat "$PARTS"/carry1/*.1 "$PARTS"/carry2/*.2 |
        $PYTHON -c "import sys, tarfile; tarfile.open(fileobj=sys.stdin.buffer, mode='r|xz').extractall('work')"
    cp "$PARTS"/carry2/tests/* "$tests"
    ls -l work/de-en | head -4
}

train() { # system, more options
    timeout -s TERM -k 30 "$LIMIT" $PYTHON -X faulthandler -m simultan.cli train \
        "recipes/de-en/$1.toml" --out "$WORK/$1" --device "$DEVICE" $SET "${@:2}" > "$OUT/$1.log" 2>&1
    echo "$1: exit code $? after $(grep -c '^train' "$OUT/$1.log") reports"
    grep -E '^valid|Error|error' "$OUT/$1.log"
    tail -n 2 "$OUT/$1.log"
    rm -rf "${WORK:?}/model/$1" "${WORK:?}/ship/$1"
    local from=("$WORK/$1/final")
    if [ ! -e "$from" ]; then from=("$WORK/$1" --average 3); fi
    simultan export "${from[0]}" "$WORK/model/$1" --weights float32 "${from[@]:1}" &&
        simultan export "$WORK/model/$1" "$WORK/ship/$1" --weights int8 &&
        tar -C "$WORK/ship" -c "$1" | split -b 15M - "$OUT/$1.tar."
}

measure() { # system, sets, threads, more options
    OMP_NUM_THREADS=$3 CUDA_VISIBLE_DEVICES= $PYTHON recipes/de-en/measure.py "$WORK/model/$1" \
        --system "$1" --tests "$tests" --out "$WORK/measured" --sets "$2" --training "$WORK/$1" \
        "${@:4}" 2>&1 | grep -E 'BLEU|Error'
}

keep() { # the measurements so far
    tar -C "$WORK" --exclude logs -cf "$OUT/measured.tar" measured
}

for stage in "$@"; do
    echo "== $stage"
    case $stage in
        unpack) unpack ;;
        offline) train offline ;;
        mma-il)
            for set in newstest2015 europarl tatoeba covost2; do measure offline $set 3 & done
            train mma-il --set train.init_from="$WORK/model/offline"
            wait
            keep
            ;;
        wait-k)
            (
                measure mma-il "" 4 # chooses the thresholds
                measure mma-il newstest2015 4 &
                measure mma-il europarl 4 &
                wait
            ) &
            train wait-k --set train.init_from="$WORK/model/offline"
            for k in 1 2 3 4 5 7 9 11 13 15 18; do
                measure wait-k newstest2015,europarl 1 --ks $k &
            done
            wait
            keep
            ;;
        *) echo "no stage $stage" >&2 && exit 2 ;;
    esac
done
