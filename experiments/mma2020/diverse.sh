#!/usr/bin/env bash
# The data of part two's last models: what two teachers and a third one, the other way round, make
# of the training text (Nguyen et al. 2020: Data diversification).
#   diverse.sh reverse RELEASED PREPARED             iwslt15-bpe16k-reversed and its twin with BPE-dropout
#   diverse.sh translate RELEASED PREPARED RUN ...   the training text by the model RUN/final
#   diverse.sh prepare RELEASED PREPARED             iwslt15-bpe16k-diverse and its twin with BPE-dropout
#   diverse.sh follow RELEASED PREPARED WORK         the last two, beside the harness (--out WORK --wait SECONDS): each
#                                                    model as soon as it is trained; WAIT: most seconds for one
# RELEASED: folder of train.en.xz and the others. PREPARED: folder of iwslt15-bpe16k; what is made
# lies beside it. RUN: folder of one of the three runs of the group modern-teachers that end it; translations
# are kept in PREPARED/diverse and continued. DEVICE: to translate on; LINES: so many, for a trial.
set -eu
: "${SIMULTAN:=simultan}" "${DEVICE:=cuda}" "${LINES:=0}" "${WAIT:=900}" "${PYTHON:=python3}"
step=$1 released=$2 prepared=$3
own=$prepared/diverse teachers="modern-offline-teacher1 modern-offline-teacher2" backward=modern-offline-backward
mkdir -p "$own"
trap 'code=$?; [ $code = 0 ] || echo "diverse.sh $step: FAILED"' EXIT # on_gpu.sh wait ends and tells it

build() { # name, prepare's arguments: once as it is, once with BPE-dropout, side by side
    name=$prepared/$1 && shift
    $SIMULTAN prepare --like "$prepared/iwslt15-bpe16k" "$@" --out "$name" --overwrite &
    $SIMULTAN prepare --like "$prepared/iwslt15-bpe16k" "$@" --out "$name-dropout" --bpe-dropout 0.1 --overwrite
    wait $!
}

sets() { # source and target language
    echo --source-language "$1" --target-language "$2" --valid-source "$released/valid.$1.xz" \
        --valid-target "$released/valid.$2.xz" --test-source "$released/test.$1.xz" --test-target "$released/test.$2.xz"
}

pack() { # NAME.txt: for the way home; without it the next session has to train the teachers again
    $PYTHON -c 'import lzma, pathlib, sys; path = pathlib.Path(sys.argv[1]); new = path.with_name(path.name + ".partial")
new.write_bytes(lzma.compress(path.read_bytes(), preset=4)); new.rename(path.with_name(path.name + ".xz"))' "$1"
}

translate() { # folder of a run
    name=$(basename "$1") side=en
    [ "$name" = $backward ] && side=vi
    for search in "--beam 4" ""; do # without beams if they fail
        # shellcheck disable=SC2086 # options are words
        $SIMULTAN distill "$1/final" --source "$released/train.$side.xz" --out "$own/$name.txt" \
            --device "$DEVICE" --first "$LINES" $search && { pack "$own/$name.txt" & return; }
        rm -f "$own/$name.txt"
    done
    return 1
}

follow() { # the harness' folder
    for name in modern-offline-teacher1 $backward modern-offline-teacher2; do # in the order of the plan's list
        last=$((SECONDS + WAIT))
        until grep -q '"finished": true' "$1/trained/$name.json" 2> /dev/null; do
            if [ $SECONDS -ge $last ]; then break; fi
            sleep 0.5
        done
        translate "$1/runs/$name" || echo "diverse.sh: FAILED: goes on without $name"
    done
}

case $step in
    reverse)
        build iwslt15-bpe16k-reversed $(sets vi en) --source "$released/train.vi.xz" --target "$released/train.en.xz" ;;
    translate) for run in "${@:4}"; do translate "$run"; done ;;
    follow) follow "$4" && exec "$0" prepare "$released" "$prepared" ;;
    prepare)
        texts=()
        for side in en vi; do
            $PYTHON -c 'import lzma, sys; sys.stdout.buffer.writelines(line for number, line in
                enumerate(lzma.open(sys.argv[1])) if number < int(sys.argv[2]) or sys.argv[2] == "0")' \
                "$released/train.$side.xz" "$LINES" > "$own/train.$side"
        done
        for name in $teachers; do # those that are there
            if [ -s "$own/$name.txt" ]; then texts+=(--source "$own/train.en" --target "$own/$name.txt"); fi
        done
        if [ -s "$own/$backward.txt" ]; then texts+=(--source "$own/$backward.txt" --target "$own/train.vi"); fi
        build iwslt15-bpe16k-diverse $(sets en vi) --source "$own/train.en" --target "$own/train.vi" "${texts[@]}" ;;
    *) echo "diverse.sh: reverse, translate, prepare or follow" >&2 && exit 2 ;;
esac
