#!/usr/bin/env bash
#SBATCH --job-name=tupe
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8
#SBATCH --cpus-per-task=64
#SBATCH --signal=B:USR1@120
#SBATCH --requeue
#SBATCH --open-mode=append
# Pre-train on the GPUs of one or more nodes; the arguments are those of fairseq-hydra-train:
#
#   sbatch --nodes 2 examples/pretraining/slurm.sh --config-dir ... --config-name base ...
#
# Each node has one task, in which fairseq starts a process for each GPU. Submit it in the root of the
# repository with the environment activated. Two minutes before its time limit, Slurm sends USR1 to
# this script, which puts the job back into the queue; --requeue alone does so after a failure of a
# node or for a job of higher priority. A requeued job resumes from its last checkpoint, since
# hydra.run.dir is fixed.
set -euo pipefail

requeued=
requeue() {
  requeued=yes
  # Training goes on to the time limit where Slurm does not allow it.
  scontrol requeue "$SLURM_JOB_ID" || echo "error: job $SLURM_JOB_ID cannot be requeued" >&2
}
trap requeue USR1

gpus=${SLURM_GPUS_PER_NODE##*:} # "8", or "h100:8"
# In the background: a shell that waits for a foreground process does not handle signals.
srun fairseq-hydra-train "$@" \
  distributed_training.distributed_world_size=$((SLURM_JOB_NUM_NODES * gpus)) \
  distributed_training.distributed_port="${PORT:-29500}" &
status=0
wait "$!" || status=$?
if [[ $requeued ]]; then
  # The signal has ended `wait`, not srun.
  status=0
  wait "$!" || status=$?
fi
exit "$status"
