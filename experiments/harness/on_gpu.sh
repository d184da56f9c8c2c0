#!/usr/bin/env bash
# A part of a plan on a machine that keeps nothing. Run again, it continues where it stopped.
#   on_gpu.sh EXPERIMENT [NAMES [MINUTES [TRAIN_MINUTES [MORE OPTIONS ...]]]]
# trains and measures; results, predictions and the log go to $OUT as one archive, to be unpacked in
# the experiment's folder. What a call cannot bring at once comes and goes in parts:
#   on_gpu.sh keep FOLDER           copies the parts in a folder to $STORE
#   on_gpu.sh unpack                unpacks all parts (NAME.tar.xz.01, NAME.tar.xz.02, ...) into $WORK
#   on_gpu.sh ship NAMES [FIRST]    models of runs as float16, pieces of 15 MiB, four of them to $OUT
# An archive's folders are those of $WORK: data/CORPUS, runs/NAME/final, trained/NAME.json, and site/:
# Python packages that are used where the machine has none of that name.
# DATA: folder of the prepared corpora (runs). WORK: checkpoints. REVISION: of the code. COMPILED: folder
# of compiled code that is kept; with it a fresh machine has less to compile.
set -u
cd "$(dirname "$0")/../.."
export PYTHONPATH=src:. PYTHONUNBUFFERED=1
: "${PYTHON:=python3}" "${OUT:=.}"
if [ -z "${WORK:-}" ]; then
    # in memory where there is enough of it: saving must not hold up the device
    free=$(df --output=avail -k /dev/shm 2> /dev/null | tail -1)
    if [ "${free:-0}" -gt 50000000 ]; then WORK=/dev/shm/experiments; else WORK=work/experiments; fi
fi
: "${STORE:=$WORK/parts}"
mkdir -p "$WORK" "$OUT"

unpack() {
    for first in "$STORE"/*.01; do
        stem=${first%.01}
        case $stem in *.xz) kind=xz ;; *) kind= ;; esac
        cat "$stem".[0-9]* | $PYTHON -c "import sys, tarfile
tarfile.open(fileobj=sys.stdin.buffer, mode='r|$kind').extractall(sys.argv[1], filter='data')" "$WORK" || return 1
        rm "$stem".[0-9]*
    done
    du -s "$WORK"/data/* "$WORK"/runs/*/final 2> /dev/null || true
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
    mkdir -p "$WORK/ship"
    rm -f "$WORK"/ship/pieces.*
    folders=()
    for name in ${1//,/ }; do
        folder=$WORK/ship/runs/$name/final
        [ -d "$folder" ] || $PYTHON -m simultan.cli export "$WORK/runs/$name/final" "$folder" --weights float16 || exit 1
        mkdir -p "$WORK/ship/trained" && cp "$WORK/trained/$name.json" "$WORK/ship/trained"
        folders+=("runs/$name/final" "trained/$name.json")
    done
    tar -C "$WORK/ship" -c "${folders[@]}" | split -b 15M -d -a 2 --numeric-suffixes=1 - "$WORK/ship/pieces."
    number=0
    for piece in "$WORK"/ship/pieces.*; do
        if [ $number -ge "$2" ] && [ $number -lt $(($2 + 4)) ]; then
            cp "$piece" "$OUT/${1//,/-}.tar.${piece##*.}"
        fi
        number=$((number + 1))
    done
    echo "$number pieces"
}

add_packages
case ${1:?an experiment, or keep, unpack or ship} in
    keep) mkdir -p "$STORE" && cp "${2:?a folder}"/* "$STORE" && ls -l "$STORE"; exit ;;
    unpack) unpack; exit ;;
    ship) ship "${2:?names}" "${3:-0}"; exit ;;
esac

experiment=$1 names=${2:-} minutes=${3:-8.7} train=${4:-${3:-8.7}}
work=$WORK/$experiment
mkdir -p "$work/results"
for folder in data runs trained; do # what was unpacked
    [ -e "$work/$folder" ] || { mkdir -p "$WORK/$folder" && ln -s "$(realpath "$WORK/$folder")" "$work/$folder"; }
done
cp -n experiments/"$experiment"/results/*.json "$work/results/" 2> /dev/null # has a result: is skipped
cp -n experiments/"$experiment"/RUNS.md "$work/" 2> /dev/null

pack() {
    (cd "$work" && tar -chf .found.tar $(ls -d results predictions RUNS.md errors 2> /dev/null))
    cp "$work/.found.tar" "$OUT/.found.tar" && mv "$OUT/.found.tar" "$OUT/$experiment.tar"
    cp "$work/log.txt" "$OUT/log.txt"
}

$PYTHON -X faulthandler -m experiments.harness "$experiment" --only "$names" --data "${DATA:-runs}" \
    --out "$work" --results "$work" --minutes "$minutes" --train-minutes "$train" --jobs "${JOBS:--1}" \
    --revision "${REVISION:-}" ${COMPILED:+--compiled "$COMPILED"} "${@:5}" >> "$work/log.txt" 2>&1 &
runner=$!
tail -f -n +1 --pid=$runner "$work/log.txt" | grep --line-buffered -E '^\[|^valid|FAILED|^(done|left|failed|skipped) |Error' &
while kill -0 $runner 2> /dev/null; do # a call that is cut off still brings back what it has
    for _ in $(seq 60); do kill -0 $runner 2> /dev/null || break; sleep 0.5; done
    pack
done
wait $runner
code=$?
pack
exit $code
