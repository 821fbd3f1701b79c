#!/bin/sh
# install-once.sh FILE PATH: installs FILE at PATH below $DESTDIR unless something is there already.
set -eu

target=${DESTDIR:-}$2
[ -e "$target" ] || install -D -m 644 "$1" "$target"
