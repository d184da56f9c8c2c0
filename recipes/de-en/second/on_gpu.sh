#!/usr/bin/env bash
# The second edition on a machine with a GPU that keeps nothing, in stages:
#   recipes/de-en/second/on_gpu.sh keep unpack:pairs swap back:440 translate-back:240 pack:made send:0-3
# A number is a limit in seconds. ../README.md (5) says what travels in which call.
# WORK outlives a call, but not the machine. PARTS: what came with this call. What is to be kept goes to
# OUT: logs.tar and four pieces of 15 MiB a call. SET: more options of `simultan train`. BACK and FORWARD:
# of `simultan distill`, such as BACK="--sample --top-k 10".
set -u
cd "$(dirname "$0")/../../.."
export PYTHONPATH=src PYTHONUNBUFFERED=1
: "${OUT:=runs/de-en2/out}" "${SET:=}" "${PARTS:=runs/de-en2/parts}" "${DEVICE:=cuda}" "${PYTHON:=python3}"
: "${BACK:=--longest 192}" "${FORWARD:=--longest 192 --beam 4}" "${LIMIT:=500}" "${THRESHOLDS:=0.1,0.5,0.9}"
if [ -z "${WORK:-}" ]; then # in memory where there is enough: saving must not hold up the GPU
    free=$(df --output=avail -k /dev/shm 2> /dev/null | tail -1)
    if [ "${free:-0}" -gt 50000000 ]; then WORK=/dev/shm/de-en2; else WORK=work/de-en2-runs; fi
fi
second=recipes/de-en/second data=$WORK/data
mkdir -p "$OUT" "$WORK/parts" "$WORK/made" "$WORK/out" "$WORK/ship" "$WORK/measured" \
    "$WORK/logs" "$data"

train() { # name, recipe, data, seconds, more options
    timeout -s TERM -k 30 $(($4 + 60)) $PYTHON -X faulthandler -m simultan.cli train \
        "$second/$2.toml" --out "$WORK/$1" --device "$DEVICE" --minutes "$($PYTHON -c "print($4 / 60)")" \
        --set data.folder="$data/$3" --compiled "$WORK/compiled.zip" \
        $SET "${@:5}" > "$WORK/logs/$1.log" 2>&1
    echo "$1: exit code $? after $(grep -c '^train' "$WORK/logs/$1.log") reports"
    grep -E '^valid|Error|error' "$WORK/logs/$1.log"
    tail -n 2 "$WORK/logs/$1.log"
    cp "$WORK/$1/metrics.jsonl" "$WORK/logs/$1.metrics.jsonl"
    case $1 in offline | mma-il | wait-k)
        $PYTHON recipes/de-en/measure.py --system "$1" --out "$WORK/measured" --training "$WORK/$1" ;;
    esac
}

translate() { # model, source, result, seconds, more options; a result that was begun is continued
    timeout -s TERM -k 30 "$4" $PYTHON -m simultan.cli distill "$WORK/$1/final" \
        --source "$2" --out "$3" --device "$DEVICE" "${@:5}" > "$WORK/logs/$(basename "$3").log" 2>&1
    echo "$3: exit code $?, $(wc -l < "$3") lines"
    tail -n 1 "$WORK/logs/$(basename "$3").log"
}

ship() { # a model to send, in int8
    rm -rf "${WORK:?}/ship/$1"
    $PYTHON -m simultan.cli export "$WORK/$1/final" "$WORK/ship/$1" --weights int8 &&
        $PYTHON $second/carry.py pack "$WORK/out/$1" "$WORK/ship/$1"
}

measure() { # model, sets, more options; on the CPU, as it will be used
    local system=$1 out=$WORK/measured
    if [ "$1" = pairs ]; then system=offline out=$WORK/measured/pairs; fi
    OMP_NUM_THREADS=1 CUDA_VISIBLE_DEVICES="" nice -n 19 $PYTHON recipes/de-en/measure.py \
        "$WORK/$1/final" --system "$system" --tests "$data/tests" --out "$out" --sets "$2" \
        "${@:3}" 2>&1 | grep -E 'BLEU|Error'
}

for stage in "$@"; do
    name=${stage%%:*} value=$LIMIT
    if [ "$name" != "$stage" ]; then value=${stage#*:}; fi
    echo "== $stage ($SECONDS s)"
    case $name in
        keep) cp "$PARTS"/* "$WORK/parts/" && ls -l "$WORK/parts" ;;
        unpack) $PYTHON $second/carry.py unpack "$WORK/parts/$value" --into "$data" | head -3 ;;
        swap) $PYTHON $second/prepare.py swap "$data/pairs" --out "$data/swapped" ;;
        back) train back back swapped "$value" ;;
        translate-back)
            for text in common-voice-en wikipedia; do
                end=$((SECONDS + value))
                translate back "$WORK/parts/$text.en.xz" "$WORK/made/$text.back.de" "$value" $BACK
                value=$((end > SECONDS ? end - SECONDS : 1))
            done
            ;;
        pairs) train pairs offline pairs "$value" ;; # the student's size without back-translation
        teacher) train teacher teacher taught "$value" ;;
        decode) $PYTHON $second/prepare.py decode "$data/taught" --out "$WORK/texts" ;;
        forward) # German of Common Voice, then the texts of decode, the smallest first; in one go
            texts=$(ls -Sr "$WORK"/texts/*.de) begin=1
            $PYTHON -c "import lzma, sys; sys.stdout.buffer.write(lzma.open(sys.argv[1]).read())" \
                "$WORK/parts/common-voice-de.de.xz" > "$WORK/common-voice-de.de"
            cat "$WORK/common-voice-de.de" $texts > "$WORK/forward.de"
            translate teacher "$WORK/forward.de" "$WORK/forward.en" "$value" $FORWARD
            for text in "$WORK/common-voice-de.de" $texts; do # as much of each as there was time for
                count=$(wc -l < "$text") called=$(basename "$text" .de)
                tail -n +$begin "$WORK/forward.en" | head -n "$count" > "$WORK/made/$called.forward.en"
                begin=$((begin + count))
            done
            wc -l "$WORK"/made/*.forward.en
            ;;
        offline) train offline offline speech "$value" ;;
        mma-il) train mma-il mma-il speech "$value" --set train.init_from="$WORK/offline/final" ;;
        wait-k) train wait-k wait-k speech "$value" --set train.init_from="$WORK/offline/final" ;;
        measure)
            case $value in
                mma-il)
                    for threshold in ${THRESHOLDS//,/ }; do
                        for set in newstest2015 europarl; do
                            measure "$value" $set --thresholds "$threshold" &
                        done
                    done
                    ;;
                *) for set in newstest2015 europarl tatoeba covost2; do measure "$value" $set & done ;;
            esac
            wait
            ;;
        ship) ship "$value" ;;
        pack) # made: all that was translated
            $PYTHON $second/carry.py pack "$WORK/out/$value" "$WORK/$value"
            ;;
        send) # pieces FROM-TO of all that was packed
            ls "$WORK/out" | sed -n "$((${value%-*} + 1)),$((${value#*-} + 1))p" |
                while read -r piece; do cp "$WORK/out/$piece" "$OUT/"; done
            ls -l "$WORK/out" "$OUT"
            ;;
        *) echo "no stage $name" >&2 && exit 2 ;;
    esac
done
tar -C "$WORK" --exclude measured/logs -cf "$OUT/logs.tar" logs measured # few files come back
echo "== done ($SECONDS s)"
