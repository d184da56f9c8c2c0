#!/usr/bin/env bash
# Before and after the stretch (../README.md, 5):
#   recipes/de-en/second/at_home.sh pack DATA     what travels: runs/de-en2/carry/1, 2 and 3
#   recipes/de-en/second/at_home.sh take FOLDER   what came back, of all calls: models/de-en-new
# START: a model of the second edition whose weights the students start from, which fills carry/4. POLICY=kept: its policy, too.
# PAIRS: options of `prepare.py pairs`. PIECE: MiB of the first piece of pairs. WORKERS: "--workers 1".
set -eu
cd "$(dirname "$0")/../../.."
export PYTHONPATH=src
: "${PYTHON:=python3}" "${WORK:=work/de-en}" "${CARRY:=runs/de-en2/carry}" "${PAIRS:=}" "${WORKERS:=}" "${PIECE:=61}"
: "${START:=}" "${POLICY:=}" "${TEXTS:=recipes/de-en/second/texts.toml}" "${BACK:=runs/de-en2/back}" "${MODEL:=models/de-en-new}"
second=recipes/de-en/second

pack() { # the corpora's folder
    [ -e "$WORK/pairs/train.begins.npy" ] ||
        $PYTHON $second/prepare.py pairs "$1" --out "$WORK/pairs" --texts "$TEXTS" ${START:+--like "$START"} $PAIRS
    rm -rf "$CARRY" "$WORK/slim" "$WORK/texts" "$WORK/start"
    mkdir -p "$CARRY/1" "$CARRY/2" "$CARRY/3" "$WORK/texts"
    $PYTHON $second/pieces.py slim "$WORK/pairs" --out "$WORK/slim/pairs"
    # English to translate, and every evaluation set, as they lie in the corpora's folder
    $PYTHON - "$1" "$TEXTS" << 'EOF' | while read -r path; do
import sys; sys.path.insert(0, "recipes/de-en/second")
from pathlib import Path
from prepare import Sources
sources = Sources.read(Path(sys.argv[1]), Path(sys.argv[2]))
for path in [*sources.evaluation(), *(text for text, _ in sources.mono("en").values())]:
    print(path.relative_to(sys.argv[1]))
EOF
        mkdir -p "$WORK/texts/$(dirname "$path")" && cp "$1/$path" "$WORK/texts/$path"
    done
    $PYTHON $second/carry.py pack "$CARRY/2/pairs" "$WORK/slim/pairs" --piece "$PIECE" $WORKERS
    mv "$CARRY/2/pairs.tar.xz.00" "$CARRY/1"
    find "$CARRY/2" -name 'pairs.tar.xz.*' ! -name '*.01' -exec mv {} "$CARRY/3" \;
    $PYTHON $second/carry.py pack "$CARRY/3/texts" "$WORK"/texts/* --piece 61 $WORKERS
    if [ -n "$START" ]; then # its own vocabulary, or it fits nothing
        cmp "$START/vocabulary.source.json" "$WORK/pairs/vocabulary.source.json"
        $PYTHON -m simultan.cli export "$START" "$WORK/start/final" --weights int8 $([ "$POLICY" = kept ] || echo --offline)
        rm -f "$WORK/start/final/ends.safetensors"
        $PYTHON $second/carry.py pack "$CARRY/4/start" "$WORK/start" --piece 61 $WORKERS
    fi
    $PYTHON - "$CARRY" << 'EOF'
import json, pathlib, sys
carry = pathlib.Path(sys.argv[1])
pieces = {path.name: path.stat().st_size for path in sorted(carry.glob("?/*.tar.xz.*"))}
(carry / "1" / "parts.json").write_text(json.dumps(pieces, indent=1) + "\n")
EOF
    du -m "$CARRY"/?
}

take() { # a folder with the files of all calls, in folders of any name; the newest count
    rm -rf "$BACK" && mkdir -p "$BACK/pieces" "$BACK/models"
    find "$1" -type f -printf '%T@ %p\n' | sort -n | cut -d' ' -f2- |
        while read -r path; do cp "$path" "$BACK/pieces/"; done
    tar -C "$BACK" -xf "$BACK/pieces/logs.tar"
    for first in "$BACK"/pieces/*.tar.xz.00; do
        name=$(basename "$first" .tar.xz.00) into=$BACK/models
        if [ "$name" = made ]; then into=$WORK; fi # what was translated back, for another stretch
        $PYTHON $second/carry.py unpack "$BACK/pieces/$name" --into "$into" > "$BACK/$name.list"
        echo "$name: $(wc -l < "$BACK/$name.list") files in $into/$name"
    done
    [ -d "$BACK/models/mma-il" ] || mv "$BACK/models/mma-il-early" "$BACK/models/mma-il"
    mkdir -p "$MODEL" && cp "$BACK"/models/mma-il/* "$MODEL/"
    if [ -e "$BACK/measured/lags.json" ]; then cp "$BACK/measured/lags.json" "$MODEL/"; fi
    ls -l "$MODEL" "$BACK/measured"
}

case ${1:-} in
    pack) pack "${2:?the corpora\'s folder}" ;;
    take) take "${2:?a folder with what came back}" ;;
    *) sed -n '2,5s/^# //p' "$0" && exit 2 ;;
esac
