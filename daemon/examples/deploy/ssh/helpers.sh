#!/bin/sh
# helpers.sh HOST...: a helper on each host, by ssh, until this script ends. $CONFIG has one path on all of them, with
# helpers.secret_file, and helpers.run and rendezvous, by which daemons find them.
set -eu
ssh=${SSH:-ssh -tt} # -tt: what runs there ends with the connection
port=${PORT:-7071}
pids=

trap 'kill $pids 2>/dev/null' EXIT
trap 'exit 1' INT TERM
for host; do
    $ssh "$host" "dloaderd --helper ${ADDRESS:-0.0.0.0}:$port --config ${CONFIG:-/etc/dloader/helper.conf}" &
    pids="$pids $!"
done
wait
