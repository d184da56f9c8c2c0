#!/usr/bin/env bash
# Before and after on_gpu.sh, on the machine that keeps things; run in the repository's root.
#   at_home.sh pack WORK NAME FOLDER ...  folders of WORK (data/CORPUS, runs/NAME/final, trained/NAME.json, site)
#                                         as .carry/NAME.1/NAME.tar.xz.01, .carry/NAME.2/NAME.tar.xz.02, ...: one
#                                         folder for each call, to be named to `on_gpu.sh keep`
#   at_home.sh site WORK                  WORK/site: Python packages that such machines lack, from this one's Python
#                                         (PYTHON), to be packed with the rest; text in Moses tokens needs them
#   at_home.sh slim                       leaves models, translations and figures out of the checkout (a sparse
#                                         one), so that a call can carry a part beside it; `at_home.sh whole` undoes it
#   at_home.sh take EXPERIMENT FOLDER     what a call brought: results into the experiment's folder, pieces of
#                                         models into .carry/models, compiled code into .carry/compiled
# PART: most bytes of a part; 52 MiB, so that twelve are left for the checkout.
set -eu
: "${PART:=52M}" "${PYTHON:=python3}"
case ${1:?pack, site, slim, whole or take} in
    site)
        $PYTHON - "$2/site" << 'EOF'
import importlib.metadata, importlib.util, pathlib, re, shutil, sys
site, waiting, done = pathlib.Path(sys.argv[1]), ["sacremoses"], {"regex"}  # compiled, and sacrebleu brings it
while waiting:
    name = waiting.pop()
    done.add(name)
    found = importlib.util.find_spec(name)
    if found is None:
        sys.exit(f"{name} is not installed here: pip install -e . installs it")
    shutil.rmtree(site / name, ignore_errors=True)
    unwanted = shutil.ignore_patterns("__pycache__", "test")
    shutil.copytree(pathlib.Path(found.origin).parent, site / name, ignore=unwanted)
    needs = [need for need in importlib.metadata.requires(name) or [] if ";" not in need]
    waiting += {re.match(r"\w+", need)[0] for need in needs} - done - set(waiting)
EOF
        du -sh "$2/site" ;;
    pack)
        work=$2 name=$3
        rm -rf ".carry/$name".[0-9]* && mkdir -p .carry
        tar -C "$work" --sort=name -c "${@:4}" | xz -T1 -6 | split -b "$PART" -d -a 2 --numeric-suffixes=1 - ".carry/$name.tar.xz."
        for part in ".carry/$name.tar.xz".*; do
            number=$((10#${part##*.}))
            mkdir -p ".carry/$name.$number" && mv "$part" ".carry/$name.$number/"
        done
        du -sh ".carry/$name".[0-9]* ;;
    slim)
        git sparse-checkout set --no-cone '/*' '!/models/' '!/experiments/*/predictions/' '!/experiments/*/figures/'
        du -sh --exclude=.git --exclude=.venv --exclude=.carry --exclude=work --exclude=runs . ;;
    whole) git sparse-checkout disable ;;
    take)
        experiment=$2 brought=$3
        for found in "$brought/$experiment.tar" "$brought/$experiment".*.tar; do # of each lane
            [ -e "$found" ] || continue
            log=experiments/$experiment/RUNS.md
            cp "$log" "$log.before" 2> /dev/null || : > "$log.before"
            tar -C "experiments/$experiment" -xf "$found"
            # several machines and lanes add to one log
            [ ! -s "$log.before" ] || { grep -vxFf "$log.before" "$log" >> "$log.before" || true; mv "$log.before" "$log"; }
            rm -f "$log.before"
        done
        mkdir -p .carry/models .carry/compiled .carry/diverse
        for text in "$brought"/*.txt.xz; do [ ! -e "$text" ] || cp "$text" .carry/diverse/; done
        for piece in "$brought"/*.tar.[0-9][0-9]; do [ ! -e "$piece" ] || cp "$piece" .carry/models/; done
        [ ! -e "$brought/compiled" ] || cp "$brought/compiled" ".carry/compiled/$experiment"
        git status --short "experiments/$experiment" | head
        ls -l .carry/models ;;
    *) echo "at_home.sh: pack, site, slim, whole or take" >&2 && exit 2 ;;
esac
