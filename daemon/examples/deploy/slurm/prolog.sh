#!/bin/sh
# Prolog= of slurm.conf, which slurmd runs as root on each node of a job, before the job: starts a
# daemon of the job's user. It runs that user's code, and ends with the job (epilog.sh).
set -eu
folder=${DLOADER_JOBS:-/run/dloaderd-jobs}/$SLURM_JOB_ID
gid=$(id -g "$SLURM_JOB_UID")

install -d -m 0711 "${folder%/*}"
install -d -m 0700 -o "$SLURM_JOB_UID" -g "$gid" "$folder"
cd /
setsid setpriv --reuid="$SLURM_JOB_UID" --regid="$gid" --init-groups \
    env -i PATH="$PATH" ${DLOADER_CONFIG:+DLOADER_CONFIG="$DLOADER_CONFIG"} \
    dloaderd --socket "$folder/socket" ${DLOADER_CONFIG:+--config "$DLOADER_CONFIG"} \
    </dev/null >"$folder/log" 2>&1 &
for _ in $(seq 300); do
    dlctl ready --socket "$folder/socket" >/dev/null 2>&1 && exit 0
    sleep 0.1
done
cat "$folder/log" >&2
exit 1 # the node is drained, and the job runs elsewhere
