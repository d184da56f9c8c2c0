#!/usr/bin/env bash
# What only a GPU can show, in one run of about nine minutes: the kernels against the reference,
# the operations', the training's and the decoding's speed. Each part is cut off rather than waited for.
#   benchmarks/on_gpu.sh [LOGS] [PREPARED_CORPUS]
set -u
cd "$(dirname "$0")/.."
logs=${1:-.}
corpus=${2:-}
export PYTHONPATH=src PYTHONUNBUFFERED=1
part() { # name, seconds, command
    echo "== $1"
    timeout -s ABRT "$2" "${@:3}" > "$logs/$1.log" 2>&1
    echo "exit code $?"
    grep -vE "[Ww]arn" "$logs/$1.log" | tail -15
}
part ops 60 python3 -X faulthandler benchmarks/ops.py --json "$logs/ops.json"
part training 200 python3 -X faulthandler benchmarks/training.py --json "$logs/training.json"
if [ -n "$corpus" ]; then
    part corpus 120 python3 -X faulthandler benchmarks/training.py --corpus "$corpus" --updates 1200
fi
part generation 150 python3 -X faulthandler benchmarks/generation.py
part tests 150 python3 -m pytest -q -p no:xdist -o addopts= tests/ops
part generation-tests 100 python3 -m pytest -q -p no:xdist -o addopts= -m gpu \
    tests/streaming/test_generation.py
