#!/usr/bin/env bash
# The GLUE download -> data for fine-tuning, a folder for each task: OUT/CoLA-bin, OUT/SST-2-bin, ...
#
#   bash examples/glue/preprocess_glue.sh GLUE_DIR TASK|ALL BPE_DIR OUT [OPTION...]
#
#   GLUE_DIR   holds CoLA/train.tsv, ...: the output of GLUE's download script
#   TASK       CoLA, SST-2, MRPC, STS-B, QQP, MNLI, QNLI, RTE or WNLI; ALL: all in GLUE_DIR
#   BPE_DIR    the tokenizer of the pre-trained model and its dict.txt
#   OPTION     --max-positions N (default 512), --lowercase or --cased, --workers N
#
# Completed tasks are skipped unless their files or options have changed; interrupted ones are
# repeated. This package must be installed (source .venv/bin/activate).
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
source "$here/../../scripts/steps.sh"

case ${1:-} in -h | --help) sed -n '2,12s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" && exit ;; esac
(($# >= 4)) || fail "four arguments are needed: GLUE_DIR TASK|ALL BPE_DIR OUT (see --help)."
glue=$1 chosen=$2 bpe=$3 work=$4
options=("${@:5}")
tasks=(CoLA SST-2 MRPC STS-B QQP MNLI QNLI RTE WNLI)
python -c 'import importlib.util as u, sys; sys.exit(u.find_spec("fairseq") is None)' ||
  fail "python has no fairseq: source .venv/bin/activate first."
[[ -d $glue ]] || fail "GLUE_DIR is $glue, but there is no such folder."
[[ -d $bpe ]] || fail "BPE_DIR is $bpe, but there is no such folder."

# The steps are functions of this one.
binarise() {
  run python -m examples.glue.preprocess "$glue" "$1" "$bpe" "$out" "${options[@]+"${options[@]}"}"
}
CoLA-bin() { binarise CoLA; }
SST-2-bin() { binarise SST-2; }
MRPC-bin() { binarise MRPC; }
STS-B-bin() { binarise STS-B; }
QQP-bin() { binarise QQP; }
MNLI-bin() { binarise MNLI; }
QNLI-bin() { binarise QNLI; }
RTE-bin() { binarise RTE; }
WNLI-bin() { binarise WNLI; }

# The files on which a task depends, among them one with the options.
inputs() {
  local file
  local -a folders=("$glue/$1")
  # Its model also predicts the diagnostic set.
  [[ $1 != MNLI ]] || folders+=("$glue/diagnostic" "$glue/AX")
  for file in "$bpe"/{dict.txt,*.model,encoder.json,vocab.bpe,tokenizer.json,preprocessing.json} \
    "$here"/{preprocess,tasks,readers,tokenizer}.py; do
    [[ ! -f $file ]] || printf '%s\n' "$file"
  done
  # A folder may be missing, which is a failure of find.
  { find -L "${folders[@]}" \( -name '*.tsv' -o -name '*.txt' \) -type f 2>/dev/null || true; } | sort
  printf '%s\n' "$work/.steps/options-$1"
}

if [[ $chosen != ALL ]]; then
  [[ " ${tasks[*]} " == *" $chosen "* ]] ||
    fail "TASK is $chosen, but must be ALL or one of: ${tasks[*]}."
  tasks=("$chosen")
else
  found=
  for task in "${tasks[@]}"; do [[ ! -d $glue/$task ]] || found=yes; done
  [[ $found ]] || fail "GLUE_DIR is $glue, but has none of: ${tasks[*]}."
fi

lock_work
mkdir -p "$work/.steps"
for task in "${tasks[@]}"; do
  if [[ $chosen == ALL && ! -d $glue/$task ]]; then
    printf '== %s: not in %s\n' "$task" "$glue"
    continue
  fi
  write "$work/.steps/options-$task" "${options[*]-}"
  files=()
  while IFS= read -r file; do files+=("$file"); done < <(inputs "$task")
  # Tasks do not depend on each other.
  last_key=
  step "$task-bin" "$task" "${files[@]}"
  printf '   '
  cat "$work/$task-bin/report.txt"
done
