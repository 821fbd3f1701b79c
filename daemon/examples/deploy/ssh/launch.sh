#!/bin/sh
# launch.sh HOST...: a daemon and a rank on each host, by ssh. $TRAIN and $SPEC have one path on all of
# them. Fails if a rank does; its daemon's log then stays beside where the socket was.
set -eu
ssh=${SSH:-ssh}
world=$#
rank=0
job=${JOB:-run-$$}
pids=
failed=0

for host; do
    # --private: the daemon ends with the trainer, its only client.
    $ssh "$host" "
        socket=\${XDG_RUNTIME_DIR:-/tmp}/dloaderd-$job-$rank
        dloaderd --private --socket \$socket 2>\$socket.log &
        until [ -S \$socket ] || ! kill -0 \$! 2>/dev/null; do sleep 0.1; done
        RANK=$rank WORLD_SIZE=$world DLOADER_SOCKET=\$socket python3 ${TRAIN:-train.py} ${SPEC:-numbers.yaml} &&
            rm \$socket.log" &
    pids="$pids $!"
    rank=$((rank + 1))
done
for pid in $pids; do
    wait "$pid" || failed=1
done
exit $failed
