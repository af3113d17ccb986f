#!/bin/bash
# `hothouse up`, in a container. Where HOTHOUSE_RAY__ADDRESS names a cluster, the container becomes a node of it first, one
# without CPUs: Ray lets programs join from nodes only, and the work belongs on the workers. Ends when either ends, so that the
# container is started again: a program whose cluster is gone would wait for ever.
set -eu
ulimit -c 0 # a dump of a process's memory holds secrets
rm -f "${HOTHOUSE_DATA_DIR}/run.json" # one that was killed left it, and its address may still answer
if [ -z "${HOTHOUSE_RAY__ADDRESS:-}" ]; then
    exec hothouse up "$@"
fi
# On Kubernetes the head starts together with us, and `ray start` gives up sooner than a head is up.
for _ in $(seq "${RAY_HEAD_PATIENCE_S:-180}"); do
    (exec 3<>"/dev/tcp/${HOTHOUSE_RAY__ADDRESS%:*}/${HOTHOUSE_RAY__ADDRESS##*:}") 2>/dev/null && break
    sleep 1
done
ray start --block --address="${HOTHOUSE_RAY__ADDRESS}" --num-cpus=0 --object-store-memory=80000000 --disable-usage-stats \
    --node-ip-address="$(hostname -i | cut -d' ' -f1)" &
node=$!
until [ -S /tmp/ray/session_latest/sockets/raylet ]; do
    kill -0 "${node}" # else it could not join, and has said why
    sleep 0.5
done
hothouse up "$@" &
running=$!
trap 'kill -TERM "${running}" 2>/dev/null || true' TERM INT
code=0
wait -n "${node}" "${running}" || code=$?
if kill -0 "${node}" 2>/dev/null; then
    wait "${running}" || code=$? # the trap ends a wait before the program ends
else
    echo "the Ray node has ended: the cluster is gone" >&2
    code=1
    kill -TERM "${running}" 2>/dev/null || true
    for _ in $(seq 15); do kill -0 "${running}" 2>/dev/null && sleep 1; done
    kill -KILL "${running}" 2>/dev/null || true
fi
ray stop --grace-period 5 >/dev/null 2>&1 || true # the cluster hears that the node leaves, and need not find out
exit "${code}"
