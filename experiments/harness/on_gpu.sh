#!/usr/bin/env bash
# A part of a plan on a machine that keeps nothing. Run again, it continues where it stopped.
#   on_gpu.sh EXPERIMENT [NAMES [MINUTES [TRAIN_MINUTES [MORE OPTIONS ...]]]]
# trains and measures; results, predictions and the log go to $OUT as one archive, to be unpacked in
# the experiment's folder (at_home.sh does). In several calls, where one must not take so long:
#   on_gpu.sh start EXPERIMENT ...               the same beside other calls, in a process of its own
#   on_gpu.sh wait EXPERIMENT [SECONDS [MODELS]] until then, or until it ends: what it said, and to $OUT what it
#                                                has; and of these runs the models that are trained, see ship
#   on_gpu.sh stop EXPERIMENT                    ends it, so that start goes on with changed code: after a failure
# LANE: a name; several lists of runs then train side by side, each with a log and results of its own, on the same
# corpora and models:
#   on_gpu.sh mps                   starts NVIDIA's multi-process server, so that kernels of several processes run at once
# What a call cannot bring at once comes and goes in parts:
#   on_gpu.sh keep FOLDER           copies the parts in a folder to $STORE
#   on_gpu.sh unpack                unpacks all parts (NAME.tar.xz.01, NAME.tar.xz.02, ...) into $WORK, and tries
#                                   whether all corpora can be read here
#   on_gpu.sh ship MODELS [FIRST]   models of runs as int8, in pieces of 13 MiB, four of them to $OUT, those that
#                                   no call has brought yet, or from the piece FIRST of all, counted from 0
# An archive's folders are those of $WORK: data/CORPUS, runs/NAME/final, trained/NAME.json, and site/:
# Python packages that are used where the machine has none of that name.
# DATA: folder of the prepared corpora ($WORK/data). WORK: checkpoints. REVISION: of the code. COMPILED: folder
# of compiled code that is kept (it comes back as $OUT/compiled); with it a fresh machine has less to compile.
set -u
cd "$(dirname "$0")/../.."
export PYTHONPATH=src:. PYTHONUNBUFFERED=1
: "${PYTHON:=python3}" "${OUT:=.}"
if [ -z "${WORK:-}" ]; then
    # in memory where there is enough of it: saving must not hold up the device
    free=$(df --output=avail -k /dev/shm 2> /dev/null | tail -1)
    # and where it was in an earlier call: what lies there takes of it
    if [ -d /dev/shm/experiments ] || [ "${free:-0}" -gt 50000000 ]; then WORK=/dev/shm/experiments; else WORK=work/experiments; fi
fi
: "${STORE:=$WORK/parts}"
mkdir -p "$WORK" "$OUT"

unpack() {
    for first in "$STORE"/*.01; do
        [ -e "$first" ] || continue
        stem=${first%.01}
        case $stem in *.xz) kind=xz ;; *) kind= ;; esac
        cat "$stem".[0-9]* | $PYTHON -c "import sys, tarfile
tarfile.open(fileobj=sys.stdin.buffer, mode='r|$kind').extractall(sys.argv[1], filter='data')" "$WORK" || return 1
        rm "$stem".[0-9]*
    done
    if ls "$STORE"/*.[0-9]* 2> /dev/null || ! ls "$WORK"/data/*/pipeline.json > /dev/null 2>&1; then
        echo "FAILED: parts are missing: is this another machine than that of the call before? All of them again"
        return 1
    fi
    du -s "$WORK"/data/* "$WORK"/runs/*/final 2> /dev/null || true
    add_packages
    check
}

check() { # whether this machine can read and write text of every corpus: better now than after the training
    $PYTHON - "$WORK"/data/*/pipeline.json << 'EOF'
import pathlib, sys
from simultan.data.codec import Codec
for path in map(pathlib.Path, sys.argv[1:]):
    if path.exists():
        codec = Codec.load(path.parent)
        codec.encode_source("Is it there?"), codec.decode_target(codec.encode_target("It is.")[:-1])
        print(f"{path.parent.name}: text is read and written")
EOF
    [ -z "$(ls "$WORK"/data/*/pipeline.json 2> /dev/null)" ] || $PYTHON -m simultan.cli export --help > /dev/null # ship needs it
}

add_packages() { # of $WORK/site those that are missing here
    [ -d "$WORK/site" ] || return 0
    mkdir -p "$WORK/missing"
    $PYTHON - "$WORK/site" "$WORK/missing" << 'EOF'
import importlib.util, pathlib, sys
site, missing = map(pathlib.Path, sys.argv[1:])
for package in site.iterdir():
    name = package.name.split("-")[0] if package.name.endswith(".dist-info") else package.name
    link = missing / package.name
    if importlib.util.find_spec(name) is None and not link.exists():
        link.symlink_to(package.resolve())
        print("added", package.name)
EOF
    export PYTHONPATH=$PYTHONPATH:$WORK/missing
}

ship() { # names, first piece
    mkdir -p "$WORK/ship/trained"
    for name in ${1//,/ }; do
        grep -q '"finished": true' "$WORK/trained/$name.json" 2> /dev/null || continue
        [ -e "$WORK/ship/$name.tar.01" ] && continue
        $PYTHON -m simultan.cli export "$WORK/runs/$name/final" "$WORK/ship/runs/$name/final" --weights int8 || return 1
        cp "$WORK/trained/$name.json" "$WORK/ship/trained"
        tar -C "$WORK/ship" -c "runs/$name/final" "trained/$name.json" |
            split -b 13M -d -a 2 --numeric-suffixes=1 - "$WORK/ship/$name.tar."
    done
    number=0 brought=0 most=4
    # a call brings 64 MiB and 8 files, compiled code and text too
    if [ -n "${COMPILED:-}" ] || ls "$OUT"/*.txt.xz > /dev/null 2>&1; then most=3; fi
    for name in ${1//,/ }; do
        for piece in "$WORK/ship/$name.tar".[0-9][0-9]; do
            [ -e "$piece" ] || continue
            if [ -n "$2" ]; then [ $number -ge "$2" ]; else [ ! -e "$piece.brought" ]; fi && [ $brought -lt $most ] &&
                cp "$piece" "$OUT" && touch "$piece.brought" && brought=$((brought + 1))
            number=$((number + 1))
        done
    done
    left=0
    for piece in "$WORK"/ship/*.tar.[0-9][0-9]; do [ -e "$piece" ] && [ ! -e "$piece.brought" ] && left=$((left + 1)); done
    echo "models: $brought pieces of $number, $left not brought yet"
}

pack() { # what there is, for the way home
    # not what came with the checkout: at home it may be newer by now
    (cd "$work" && tar -chf .found.tar $(ls -d predictions RUNS.md errors 2> /dev/null) \
        $(for file in results/*.json; do cmp -s "$file" ".given/$file" || ls "$file" 2> /dev/null; done))
    cp "$work/.found.tar" "$OUT/.found.tar" && mv "$OUT/.found.tar" "$OUT/$experiment$lane.tar"
    cp "$work/log.txt" "$OUT/log$lane.txt"
    for text in "$WORK"/data/diverse/*.txt.xz; do # what teachers wrote
        [ ! -e "$text" ] || [ -e "$text.brought" ] || { cp "$text" "$OUT" && touch "$text.brought"; }
    done
    # 15 MiB: what a call brings back of one file
    if [ -n "${COMPILED:-}" ]; then find "$COMPILED" -name "$experiment" -size -15360k -exec cp {} "$OUT/compiled" \;; fi
}

begin() { # names, minutes and so on: the harness, in the background
    names=${1:-} minutes=${2:-8.7} train=${3:-${2:-8.7}}
    mkdir -p "$work/results"
    for folder in data runs trained; do # what was unpacked
        [ -e "$work/$folder" ] || { mkdir -p "$WORK/$folder" && ln -s "$(realpath "$WORK/$folder")" "$work/$folder"; }
    done
    mkdir -p "$work/.given/results"
    for file in experiments/"$experiment"/results/*.json; do # has a result: is skipped
        [ ! -e "$file" ] || [ -e "$work/results/${file##*/}" ] || cp "$file" "$work/.given/results/"
    done
    cp -n "$work"/.given/results/*.json "$work/results/" 2> /dev/null
    cp -n experiments/"$experiment"/RUNS.md "$work/" 2> /dev/null
    $apart $PYTHON -X faulthandler -m experiments.harness "$experiment" --only "$names" --data "${DATA:-$WORK/data}" \
        --out "$work" --results "$work" --minutes "$minutes" --train-minutes "$train" --jobs "${JOBS:--1}" \
        --revision "${REVISION:-}" ${COMPILED:+--compiled "$COMPILED"} "${@:4}" >> "$work/log.txt" 2>&1 < /dev/null &
    runner=$!
    echo $runner > "$work/pid"
}

share() { # the GPU, through a server that gets its own session and so outlives the call
    command -v nvidia-cuda-mps-control > /dev/null || { echo "no multi-process server here"; return 1; }
    setsid nvidia-cuda-mps-control -d || return 1
    timeout 60 $PYTHON -c "import torch; x = torch.ones(8, 8, device='cuda'); print('shared:', int((x @ x).sum()))" && return
    echo quit | nvidia-cuda-mps-control
    echo "FAILED: the multi-process server does not serve, and was ended"
    return 1
}

said() { grep -E '^\[|^valid|FAILED|^(done|left|failed|skipped) |Error' || true; }

add_packages
case ${1:?an experiment, or start, wait, stop, keep, unpack, ship or mps} in
    keep) mkdir -p "$STORE" && cp "${2:?a folder}"/* "$STORE" && ls -l "$STORE"; exit ;;
    unpack) unpack; exit ;;
    ship) ship "${2:?names}" "${3:-}"; exit ;;
    mps) share; exit ;;
    start | wait | stop) experiment=${2:?an experiment} ;;
    *) experiment=$1 ;;
esac
lane=${LANE:+.$LANE}
work=$WORK/$experiment$lane apart=
mkdir -p "$work"
touch "$work/log.txt"

if [ "$1" = stop ]; then
    runner=$(cat "$work/pid") last=$((SECONDS + 20))
    kill "$runner" 2> /dev/null # a training saves a checkpoint first
    while kill -0 "$runner" 2> /dev/null && [ $SECONDS -lt $last ]; do sleep 0.2; done
    # all of its session: processes that measure would stay
    pkill -9 -s "$runner" 2> /dev/null
    echo "$experiment has ended"
    exit
fi
if [ "$1" = start ]; then
    if kill -0 "$(cat "$work/pid" 2> /dev/null)" 2> /dev/null; then echo "$experiment is running already" && exit 1; fi
    apart=setsid begin "${@:3}"
    echo "started $experiment, process $runner"
    exit
fi
if [ "$1" = wait ]; then
    runner=$(cat "$work/pid") last=$((SECONDS + ${3:-500})) heard=$(cat "$work/heard" 2> /dev/null || echo 0)
    # not for nothing: a failure is told at once, and so is that there is no more to do
    while kill -0 "$runner" 2> /dev/null && [ $SECONDS -lt $last ] &&
        ! tail -c +$((heard + 1)) "$work/log.txt" | grep -qE 'FAILED|has had its turn'; do sleep 0.5; done
    tail -c +$((heard + 1)) "$work/log.txt" | said
    wc -c < "$work/log.txt" > "$work/heard"
    kill -0 "$runner" 2> /dev/null && echo "$experiment is running" || {
        tail -n 4 "$work/log.txt" | grep -qE '^(done|failed) ' || tail -n 20 "$work/log.txt" # it was killed, or died without a word
        echo "$experiment has ended"
    }
    pack
    if [ -n "${4:-}" ]; then ship "$4" ""; fi
    exit
fi
begin "${@:2}"
tail -f -n +1 --pid=$runner "$work/log.txt" | grep --line-buffered -E '^\[|^valid|FAILED|^(done|left|failed|skipped) |Error' &
while kill -0 $runner 2> /dev/null; do # a call that is cut off still brings back what it has
    for _ in $(seq 60); do kill -0 $runner 2> /dev/null || break; sleep 0.5; done
    pack
done
wait $runner
code=$?
pack
exit $code
