#!/bin/sh
# As the official image of MongoDB does it: arguments without a program are those of mongod.
case "$1" in -*) set -- mongod --wiredTigerCacheSizeGB 0.25 "$@" ;; esac
exec "$@"
