#!/bin/sh
# `hothouse up`, in a container. Where HOTHOUSE_RAY__ADDRESS names a cluster, the container becomes a node of it first, one
# without CPUs: Ray lets programs join from nodes only, and the work belongs on the workers.
set -eu
rm -f "${HOTHOUSE_DATA_DIR}/run.json" # one that was killed left it, and its address may still answer
if [ -z "${HOTHOUSE_RAY__ADDRESS:-}" ]; then
    exec hothouse up "$@"
fi
ray start --address="${HOTHOUSE_RAY__ADDRESS}" --num-cpus=0 --object-store-memory=80000000 --disable-usage-stats \
    --node-ip-address="$(hostname -i | cut -d' ' -f1)"
hothouse up "$@" &
running=$!
trap 'kill -TERM "${running}" 2>/dev/null || true' TERM INT
code=0
while kill -0 "${running}" 2>/dev/null; do wait "${running}" && code=0 || code=$?; done
ray stop --grace-period 5 >/dev/null 2>&1 || true # the cluster hears that the node leaves, and need not find out
exit "${code}"
