#!/usr/bin/env bash
# Give a released encoder, all-MiniLM-L6-v2, the positions of TUPE-R, and compare both: which sentences
# they find alike, and how long they take with and without `optimize`. Needs Python 3.10 to 3.13 or uv,
# fetches 80 MB, and takes minutes on two CPU cores.
#
#   bash scripts/quickstart_released.sh           continue the last call
#   bash scripts/quickstart_released.sh --fresh   start over
#
# All output is in .quickstart-released/ (and in .venv/ and .released/); examples/transplant/README.md
# describes what is done.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/steps.sh
work=.quickstart-released

fresh=
for word in "$@"; do
  case $word in
    --fresh) fresh=yes ;;
    -h | --help) sed -n '2,/^set/s/^# \{0,1\}//p' scripts/quickstart_released.sh && exit ;;
    *) printf 'error: unknown argument %q; there is --fresh.\n' "$word" >&2 && exit 2 ;;
  esac
done

bash scripts/released_model.sh
source scripts/environment.sh
source=.released/all-MiniLM-L6-v2
# Waiting threads yield the core: on a busy machine, spinning makes training slower.
export OMP_WAIT_POLICY=PASSIVE

download() {
  run python -m pip download --no-deps --no-binary :all: --no-build-isolation --require-hashes \
    --requirement examples/quickstart/data.txt --dest "$out"
}

text() {
  run python -m examples.quickstart.prepare $work/download/vaderSentiment-3.3.2.tar.gz "$out"
}

transplant() {
  show python -m examples.transplant $source $work/text/pretrain.train --position-encoding tupe_r \
    --length 64 --updates 200 --out "$out"
}

lock_work
[[ ! $fresh ]] || reset_work
step download "Fetch a text" examples/quickstart/data.txt
step text "Split the text" examples/quickstart/prepare.py
step --resumable transplant "Replace the positions of all-MiniLM-L6-v2 by those of TUPE-R"
python -m examples.transplant.compare $source $work/transplant/transformers $work/text/pretrain.valid
