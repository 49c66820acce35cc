#!/usr/bin/env bash
#SBATCH --job-name=tupe
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8
#SBATCH --cpus-per-task=64
#SBATCH --signal=TERM@120
#SBATCH --requeue
#SBATCH --open-mode=append
# Pre-train on the GPUs of one or more nodes; the arguments are those of fairseq-hydra-train:
#
#   sbatch --nodes 2 examples/pretraining/slurm.sh --config-dir ... --config-name base ...
#
# Each node has one task, in which fairseq starts a process for each GPU. Submit it in the root of the
# repository with the environment activated. A requeued job resumes from its last checkpoint, since
# hydra.run.dir is fixed.
set -euo pipefail

gpus=${SLURM_GPUS_PER_NODE##*:} # "8", or "h100:8"
srun fairseq-hydra-train "$@" \
  distributed_training.distributed_world_size=$((SLURM_JOB_NUM_NODES * gpus)) \
  distributed_training.distributed_port="${PORT:-29500}"
