#!/usr/bin/env bash
# Train a model with N processes on this machine with torchrun: one for each GPU (NCCL), or on the CPU
# (Gloo) without a GPU or with --cpu. The arguments are those of fairseq-train:
#
#   bash scripts/train_distributed.sh 4 data-bin --user-dir tupe_fairseq --arch tupe_roberta_base ...
#
# For several machines, run torchrun on each of them:
#
#   torchrun --nnodes 2 --nproc-per-node 8 --rdzv-backend c10d --rdzv-endpoint HOST:29500 \
#       -m tupe_fairseq.fairseq.distributed.worker data-bin --user-dir tupe_fairseq ...
#
# N processes with --update-freq F are equivalent to one process with --update-freq N·F. If a process
# fails, torchrun stops the others and reports that below the error itself; the same command resumes
# from the last checkpoint, also with another N.
set -euo pipefail

if [[ ${1-} == -h || ${1-} == --help ]]; then
  sed -n '2,/^set/s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"
  exit
fi
if [[ ! ${1-} =~ ^[1-9][0-9]*$ ]]; then
  echo "error: N is '${1-}', but must be a number of processes: train_distributed.sh N FLAG..." >&2
  exit 1
fi
# Use the active environment, or otherwise .venv.
if ! python -c 'from importlib.util import find_spec as f; exit(not (f("fairseq") and f("tupe_fairseq")))' \
  2>/dev/null; then
  caller=$PWD
  cd "$(dirname "${BASH_SOURCE[0]}")/.."
  source scripts/environment.sh
  cd "$caller"
fi
# torchrun would set one thread for each process.
cores=$(nproc 2>/dev/null || getconf _NPROCESSORS_ONLN)
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-$((cores > $1 ? cores / $1 : 1))}
exec python -m torch.distributed.run --standalone --local-addr localhost --nproc-per-node "$1" \
  -m tupe_fairseq.fairseq.distributed.worker "${@:2}"
