#!/usr/bin/env bash
# The recipe on a machine with a GPU that keeps nothing, in stages of so many seconds:
#   recipes/de-en/on_gpu.sh unpack offline:500 mma-il:400 wait-k:300
# unpack takes work/de-en and the test sets from the parts in PARTS (see README.md). While the GPU
# trains a model, the CPU stores the one before as int8 and measures it. What is to be kept goes to
# $OUT: logs, measurements, and each model in pieces of 15 MiB (cat NAME.tar.* | tar x).
# SET: more options of `simultan train`. WORK: for all else.
set -u
cd "$(dirname "$0")/../.."
export PYTHONPATH=src PYTHONUNBUFFERED=1
: "${OUT:=runs/de-en/out}" "${SET:=}" "${PARTS:=runs/de-en}" "${DEVICE:=cuda}" "${PYTHON:=python3}"
: "${LIMIT:=500}" "${THRESHOLDS:=0.1,0.5,0.9}"
if [ -z "${WORK:-}" ]; then # in memory where there is enough: saving must not hold up the GPU
    free=$(df --output=avail -k /dev/shm 2> /dev/null | tail -1)
    if [ "${free:-0}" -gt 50000000 ]; then WORK=/dev/shm/de-en; else WORK=work/de-en-runs; fi
fi
tests=${TESTS:-$WORK/tests}
mkdir -p "$OUT" "$WORK/ship" "$WORK/measured"

unpack() {
    mkdir -p work "$tests"
    cat "$PARTS"/carry1/*.1 "$PARTS"/carry2/*.2 |
        $PYTHON -c "import sys, tarfile; tarfile.open(fileobj=sys.stdin.buffer, mode='r|xz').extractall('work', filter='data')"
    cp "$PARTS"/carry2/tests/* "$tests"
    ls -l work/de-en | head -4
}

train() { # system, seconds, more options
    timeout -s TERM -k 30 $(($2 + 60)) $PYTHON -X faulthandler -m simultan.cli train \
        "recipes/de-en/$1.toml" --out "$WORK/$1" --device "$DEVICE" --minutes "$(python3 -c "print($2 / 60)")" \
        $SET "${@:3}" > "$OUT/$1.log" 2>&1
    echo "$1: exit code $? after $(grep -c '^train' "$OUT/$1.log") reports"
    grep -E '^valid|Error|error' "$OUT/$1.log"
    tail -n 2 "$OUT/$1.log"
    $PYTHON recipes/de-en/measure.py --system "$1" --out "$WORK/measured" --training "$WORK/$1"
    ship "$1" &
}

ship() { # system
    rm -rf "${WORK:?}/ship/$1"
    $PYTHON -m simultan.cli export "$WORK/$1/final" "$WORK/ship/$1" --weights int8 &&
        tar -C "$WORK/ship" -c "$1" | split -b 15M - "$OUT/$1.tar." && touch "$OUT/$1.shipped"
}

measure() { # system, sets, more options
    OMP_NUM_THREADS=1 CUDA_VISIBLE_DEVICES="" nice -n 19 $PYTHON recipes/de-en/measure.py \
        "$WORK/$1/final" --system "$1" --tests "$tests" --out "$WORK/measured" --sets "$2" \
        "${@:3}" 2>&1 | grep -E 'BLEU|Error'
}

for stage in "$@"; do
    name=${stage%%:*} seconds=$LIMIT
    if [ "$name" != "$stage" ]; then seconds=${stage#*:}; fi
    echo "== $name"
    case $name in
        unpack) unpack ;;
        offline)
            train offline "$seconds"
            for set in newstest2015 europarl tatoeba covost2; do measure offline $set & done
            ;;
        mma-il)
            train mma-il "$seconds" --set train.init_from="$WORK/offline/final"
            for threshold in ${THRESHOLDS//,/ }; do
                for set in newstest2015 europarl; do measure mma-il $set --thresholds $threshold & done
            done
            ;;
        wait-k) train wait-k "$seconds" --set train.init_from="$WORK/offline/final" ;;
        *) echo "no stage $name" >&2 && exit 2 ;;
    esac
done
wait
tar -C "$WORK" --exclude logs -cf "$OUT/measured.tar" measured
touch "$OUT/all.done"
