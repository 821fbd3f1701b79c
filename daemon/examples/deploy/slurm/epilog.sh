#!/bin/sh
# Epilog= of slurm.conf, which slurmd runs as root on each node of a job, after the job.
folder=${DLOADER_JOBS:-/run/dloaderd-jobs}/$SLURM_JOB_ID

[ -d "$folder" ] || exit 0
dlctl stop --socket "$folder/socket" >/dev/null 2>&1
rm -rf "$folder"
