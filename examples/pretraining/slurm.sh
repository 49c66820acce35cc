#!/usr/bin/env bash
#SBATCH --job-name=tupe
#SBATCH --ntasks-per-node=8
#SBATCH --gpus-per-node=8
#SBATCH --cpus-per-task=8
#SBATCH --signal=B:USR1@120
#SBATCH --requeue
#SBATCH --open-mode=append
# Pre-train on the GPUs of one or more nodes; the arguments are those of fairseq-hydra-train:
#
#   sbatch --nodes 2 examples/pretraining/slurm.sh --config-dir ... --config-name base ...
#
# Each GPU has one task. Submit it in the root of the repository with the environment activated. Two
# minutes before its time limit, Slurm sends USR1 to this script, which puts the job back into the
# queue; --requeue alone does so after a failure of a node or for a job of higher priority. A requeued
# job resumes from its last checkpoint: hydra.run.dir is fixed. If a task fails, the job fails.
set -euo pipefail

requeued=
requeue() {
  requeued=yes
  # Training goes on to the time limit where Slurm does not allow it.
  scontrol requeue "$SLURM_JOB_ID" || echo "error: job $SLURM_JOB_ID cannot be requeued" >&2
}
trap requeue USR1

# Jobs may share a node.
port=$((10000 + SLURM_JOB_ID % 20000))
# In the background: a shell that waits for a foreground process does not handle signals.
# By itself, srun binds a task to one core, and waits for the other tasks if one is killed. fairseq
# derives ranks from Slurm's variables only where it finds GPUs.
srun --kill-on-bad-exit=1 --cpus-per-task="$SLURM_CPUS_PER_TASK" fairseq-hydra-train "$@" \
  distributed_training.distributed_world_size="$SLURM_NTASKS" \
  distributed_training.distributed_rank='${oc.env:SLURM_PROCID}' \
  distributed_training.device_id='${oc.env:SLURM_LOCALID}' \
  distributed_training.distributed_init_method="tcp://$SLURMD_NODENAME:$port" \
  distributed_training.distributed_no_spawn=true &
status=0
wait "$!" || status=$?
if [[ $requeued ]]; then
  # The signal has ended `wait`, not srun.
  status=0
  wait "$!" || status=$?
fi
exit "$status"
