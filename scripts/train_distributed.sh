#!/usr/bin/env bash
# Train one model by N processes on this machine: one a GPU (NCCL), or on the CPU (Gloo) where there
# is none or --cpu is given. The arguments are those of fairseq-train:
#
#   bash scripts/train_distributed.sh 4 data-bin --user-dir tupe_fairseq --arch tupe_roberta_base ...
#
# Over several machines, on each of them the same command, with torchrun's flags before a --:
#
#   bash scripts/train_distributed.sh 8 --nnodes 2 --rdzv-backend c10d --rdzv-endpoint HOST:29500 \
#       -- data-bin --user-dir tupe_fairseq ...
#
# N processes with --update-freq F do the updates of one process with --update-freq N·F. It ends with
# status 0 only where all of them trained together; where one ends badly, the others are ended.
set -euo pipefail

if [[ ${1-} == -h || ${1-} == --help ]]; then
  sed -n '2,/^set/s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"
  exit
fi
# The active environment, or else this repository's own.
if ! python -c 'from importlib.util import find_spec as f; exit(not (f("fairseq") and f("tupe_fairseq")))' \
  2>/dev/null; then
  caller=$PWD
  cd "$(dirname "${BASH_SOURCE[0]}")/.."
  source scripts/environment.sh
  cd "$caller"
fi
exec python -m tupe_fairseq.distributed.launch "$@"
