#!/usr/bin/env bash
# Train a model with N processes on this machine: one for each GPU (NCCL), or on the CPU (Gloo) without
# a GPU or with --cpu. The arguments are those of fairseq-train:
#
#   bash scripts/train_distributed.sh 4 data-bin --user-dir tupe_fairseq --arch tupe_roberta_base ...
#
# For several machines, run the same command on each, with torchrun's flags before a --:
#
#   bash scripts/train_distributed.sh 8 --nnodes 2 --rdzv-backend c10d --rdzv-endpoint HOST:29500 \
#       -- data-bin --user-dir tupe_fairseq ...
#
# N processes with --update-freq F are equivalent to one process with --update-freq N·F. The exit status
# is 0 only if all of them have trained together; if one fails, the others are stopped.
set -euo pipefail

if [[ ${1-} == -h || ${1-} == --help ]]; then
  sed -n '2,/^set/s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"
  exit
fi
# Use the active environment, or otherwise .venv.
if ! python -c 'from importlib.util import find_spec as f; exit(not (f("fairseq") and f("tupe_fairseq")))' \
  2>/dev/null; then
  caller=$PWD
  cd "$(dirname "${BASH_SOURCE[0]}")/.."
  source scripts/environment.sh
  cd "$caller"
fi
exec python -m tupe_fairseq.distributed.launch "$@"
