#!/usr/bin/env bash
# Fine-tune a pre-trained checkpoint on one task of GLUE, with the paper's hyperparameters.
#
#   bash examples/glue/finetune.sh [--user-dir FOLDER] DATA CHECKPOINT OUT [OVERRIDE...]
#
#   DATA         a folder that preprocess_glue.sh or preprocess.py made, e.g. glue/RTE-bin
#   CHECKPOINT   of the pre-trained model, which determines architecture and encoding
#   FOLDER       with encodings of your own
#   OUT          output: model/ (model of the best epoch, result.json) and logs/
#   OVERRIDE     of config/TASK.yaml, e.g. 'optimization.lr=[2e-05]' common.seed=2
#                +model.extend_positions=toeplitz: tupe_a and tupe_r, examples longer than in pre-training
#
# After an interruption the same command continues; it starts over if the arguments have changed. It
# uses a GPU if there is one. This package must be installed (source .venv/bin/activate).
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
source "$here/../../scripts/steps.sh"

case ${1:-} in -h | --help) sed -n '2,15s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" && exit ;; esac
if [[ ${1:-} == --user-dir ]]; then
  [[ -d ${2:-} ]] || fail "--user-dir is ${2:-}, but there is no such folder."
  TUPE_FAIRSEQ_USER_DIR=$(cd "$2" && pwd)
  export TUPE_FAIRSEQ_USER_DIR
  shift 2
fi
(($# >= 3)) || fail "three arguments are needed: DATA CHECKPOINT OUT (see --help)."
data=$1 checkpoint=$2 work=$3
overrides=("${@:4}")
command -v fairseq-hydra-train >/dev/null ||
  fail "no fairseq-hydra-train: source .venv/bin/activate first."
[[ -f $data/task.json ]] || fail "DATA is $data, but preprocess_glue.sh has made no task.json there."
[[ -f $checkpoint ]] || fail "CHECKPOINT is $checkpoint, but there is no such file."
mkdir -p "$work"
# fairseq-hydra-train changes into the folder of its run.
data=$(cd "$data" && pwd) work=$(cd "$work" && pwd)
checkpoint=$(cd "$(dirname "$checkpoint")" && pwd)/$(basename "$checkpoint")
task=$(python -c 'import json, sys; print(json.load(open(sys.argv[1]))["task"])' "$data/task.json")
config=${task//-/_}
config=$(printf '%s' "$config" | tr '[:upper:]' '[:lower:]')
[[ -f $here/config/$config.yaml ]] || config=own

# A path in hydra's syntax, in which commas, parentheses and letters beyond ASCII need quotes.
quoted() {
  local quote="'" escaped="\\'"
  printf "'%s'" "${1//$quote/$escaped}"
}

# Logs epochs as text for result.py, with a progress bar on a terminal.
train() {
  local format=simple
  [[ -t 2 ]] && format=tqdm
  repair_checkpoints "$out/checkpoints"
  run fairseq-hydra-train --config-dir "$here/config" --config-name "$config" \
    common.user_dir="$(quoted "${TUPE_FAIRSEQ_USER_DIR:-$root/tupe_fairseq}")" task.data="$(quoted "$data")" \
    hydra.run.dir="$(quoted "$out")" common.log_format=$format \
    checkpoint.finetune_from_model="$(quoted "$checkpoint")" \
    "${described[@]+"${described[@]}"}" "${overrides[@]+"${overrides[@]}"}"
}

# All files that are needed to use the model.
model() {
  local file
  run python -m examples.glue.result "$task" "$work/train/hydra_train.log" "$out/result.json"
  mkdir "$out/input0"
  cp "$data/input0/dict.txt" "$out/input0/"
  if [[ -f $data/label/dict.txt ]]; then
    mkdir "$out/label"
    cp "$data/label/dict.txt" "$out/label/"
  fi
  for file in "$data"/{{task,preprocessing,encoder,tokenizer}.json,sentencepiece.bpe.model,vocab.bpe}; do
    [[ ! -f $file ]] || cp "$file" "$out/"
  done
  # What a model of transformers had, and whether its head for masked tokens is untrained.
  file=$(dirname "$checkpoint")/transformers.json
  [[ ! -f $file ]] || run python -c 'import json, sys; kept = json.load(open(sys.argv[1]))
names = kept.keys() & {"headless", "legacy", "initializer_range"}
json.dump({name: kept[name] for name in names}, open(sys.argv[2], "w"))' "$file" "$out/transformers.json"
  # A copy if links are not supported.
  file=$work/train/checkpoints/checkpoint_best.pt
  ln "$file" "$out/model.pt" 2>/dev/null || cp "$file" "$out/model.pt"
}

lock_work
mkdir -p "$work/.steps" "$work/logs"
# An override of the architecture replaces the description of the checkpoint.
described=()
if [[ " ${overrides[*]-} " != *" model._name="* ]]; then
  log=$work/logs/pretrained.log
  lines=$(python -m examples.glue.pretrained "$data" "$checkpoint" "${overrides[@]+"${overrides[@]}"}" 2>"$log") ||
    fail "$(tail -n 1 "$log" | sed 's/^error: //')"
  while IFS= read -r line; do described+=("$line"); done <<<"$lines"
fi
# The end of a checkpoint, a zip archive, lists the checksums of all its tensors.
arguments=$work/.steps/arguments
write "$arguments" "$data $checkpoint $(tail -c 100000 "$checkpoint" | cksum) ${overrides[*]-}"
step --resumable train "Fine-tune on $task" "$data/task.json" "$data/input0/dict.txt" \
  "$here/config/$config.yaml" "$here/config/recipe/paper.yaml" "$arguments"
step model "Collect the model of the best epoch"
# These are needed for resuming only.
rm -rf "$work/train/checkpoints"
python -c 'import json, sys; r = json.load(open(sys.argv[1]))
print("   {task}: {metric} {score:.2f} at epoch {epoch}".format(**r))' "$work/model/result.json"
