#!/bin/bash
# An audit as an array of 16 SLURM jobs: sbatch examples/scale/slurm.sh run.toml /shared/runs/mine
#
# The folder lies on a disk that all nodes see. A job that is preempted is queued again and goes on with what is left.
#SBATCH --job-name=brinell
#SBATCH --array=1-16
#SBATCH --cpus-per-task=4
#SBATCH --gpus-per-task=1
#SBATCH --requeue
set -eu
exec brinell audit "$1" --out "$2" --shard "$SLURM_ARRAY_TASK_ID/16"
