#!/usr/bin/env bash
# The trained agents of the plan, into runs/agents: agents.sh MODEL CORPUS [NAME ...]
# AGENTS: another folder for them. PYTHON: another interpreter.
# MODEL: folder of the offline model; CORPUS: prepared with its vocabularies (prepare --like MODEL).
# On one core a run takes minutes; one that was killed continues. Then, from the repository's root:
#   python -m experiments.harness mma2020 --only agents-trained
set -eu
model=$1 corpus=$2
shift 2
declare -A changes=(
    [reinforced-0.16]="reward.lag=0.16"
    [reinforced-0.11]="reward.lag=0.11"
    [reinforced-0.08]="reward.lag=0.08"
    [reinforced-0.04]="reward.lag=0.04 agent.start=1"
    [reinforced-0.02]="reward.lag=0.02 agent.start=2"
    [reinforced-0.01]="reward.lag=0.01 agent.start=3"
    [reinforced-0.005]="reward.lag=0.005 agent.start=6"
    [reinforced-0.002]="reward.lag=0.002 agent.start=9"
    [predict-0.08]="reward.lag=0.08 reward.guess=0"
    [predict-0.03]="reward.lag=0.03 agent.start=2"
    [predict-bonus]="reward.lag=0.08 reward.guess=0.5"
    [predict-0.02]="reward.lag=0.02 reward.guess=0.5 agent.start=2"
    [imitation]="oracle.sentences=512"
)
for name in "${@:-${!changes[@]}}"; do
    sets=()
    for change in data.folder="$corpus" ${changes[$name]}; do sets+=(--set "$change"); done
    "${PYTHON:-python}" -m simultan train-agent "recipes/agents/${name%-*}.toml" --model "$model" \
        --out "${AGENTS:-runs/agents}/$name" --quantize int8 --threads 1 "${sets[@]}"
done
