#!/usr/bin/env bash
# Raw text or WikiExtractor output -> data for fairseq-train: clean it, split it into symbols and
# binarise these.
#
#   bash examples/pretraining/prepare.sh --out DATA --sentencepiece SIZE|FILE INPUT...
#   bash examples/pretraining/prepare.sh --out DATA --gpt2-bpe FOLDER --cased INPUT...
#
# INPUT are text files or folders, also .gz, .bz2 and .xz. Further arguments: --cased, --longest N
# and --valid-share S (see clean.py), --workers N (default: number of cores).
# DATA/bin is the input of fairseq-train. After an interruption the same command continues; steps whose
# arguments, files or scripts have changed are repeated.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

# shellcheck source=scripts/steps.sh
source "$here/../../scripts/steps.sh"

work=
# As tupe_fairseq/base/machine.py, without importing the package, which takes seconds.
cores='len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()'
workers=$(python -c "import os; print($cores)") || fail "there is no python on the PATH."
vocabulary=()
cleaning=()
inputs=()
while (($#)); do
  [[ $1 != -* || $1 == --cased || $1 == -h || $1 == --help || $# -gt 1 ]] ||
    fail "$1 lacks its value, or is unknown; see --help."
  case $1 in
    -h | --help) sed -n '2,/^set/s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" && exit ;;
    --cased) cleaning+=("$1") && shift && continue ;;
    --out) work=$2 && shift 2 ;;
    --sentencepiece | --gpt2-bpe) vocabulary=("$1" "$2") && shift 2 ;;
    --longest | --valid-share) cleaning+=("$1" "$2") && shift 2 ;;
    --workers) workers=$2 && shift 2 ;;
    -*) fail "unknown argument $1; see --help." ;;
    *) inputs+=("$1") && shift ;;
  esac
done
[[ $work ]] || fail "--out is missing."
((${#inputs[@]})) || fail "INPUT is missing: text files, or folders of them."
((${#vocabulary[@]})) || fail "--sentencepiece or --gpt2-bpe is missing."
[[ $workers =~ ^[1-9][0-9]*$ ]] || fail "--workers must be at least 1, but is $workers."
for path in "${inputs[@]}"; do
  [[ -e $path ]] || fail "INPUT $path does not exist."
done
python -c 'import importlib.util as u, sys; sys.exit(u.find_spec("tupe_fairseq") is None)' ||
  fail "python has no tupe_fairseq: activate the environment in which it is installed (or:" \
    "source .venv/bin/activate)."

text() {
  run python -m examples.pretraining.clean "${inputs[@]}" --out "$out" --workers "$workers" \
    "${cleaning[@]+"${cleaning[@]}"}"
}

pieces() {
  run python -m examples.pretraining.encode "$work/text" --out "$out" --workers "$workers" \
    --binarise "${vocabulary[@]}"
}

bin() {
  local files=("$work"/pieces/{dict.txt,{train,valid}.{bin,idx}})
  # For fairseq's --bpe sentencepiece and for the model's folder.
  local file
  for file in "$work"/pieces/{sentencepiece.bpe.model,preprocessing.json}; do
    [[ ! -e $file ]] || files+=("$file")
  done
  # As hard links, where the file system has them.
  run sh -c 'ln "$@" 2>/dev/null || cp "$@"' link "${files[@]}" "$out"
}

# Names, sizes and modification times of files, also in folders.
state_of() {
  python - "$@" <<'END'
import sys
from pathlib import Path
for path in map(Path, sys.argv[1:]):
    for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
        if file.is_file():
            print(ascii(str(file)), file.stat().st_size, file.stat().st_mtime_ns)
END
}

lock_work
# Steps also depend on arguments and files.
write "$work/.cleaning" "${cleaning[*]-} $(state_of "${inputs[@]}")"
write "$work/.vocabulary" "${vocabulary[*]} $(state_of "${vocabulary[1]}")"
step --resumable text "Clean the text" "$here/clean.py" "$work/.cleaning"
step --resumable pieces "Split it into symbols, and binarise these" "$here/encode.py" "$work/.vocabulary"
step bin "Complete the data"
printf 'Data for fairseq-train: %s\n' "$work/bin"
