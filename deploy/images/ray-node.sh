#!/bin/sh
# A node of the Ray cluster: `ray-node.sh head` or `ray-node.sh worker`, each with more options of `ray start`.
# Ends when the node does, so that the container is started again; KubeRay runs the same two commands.
set -eu
ulimit -c 0 # a dump of a process's memory holds secrets
role=$1
shift
address=$(hostname -i | cut -d' ' -f1)
if [ "${role}" = head ] && [ "${RAY_gcs_storage:-}" = rocksdb ]; then
    # What a head knows of its cluster is for the same container that is started again. One that is made anew, perhaps of another
    # image, gets the disk of the one before, and begins a new cluster.
    kept=${RAY_gcs_storage_path:?}/$(hostname)
    [ -d "${kept}" ] || rm -rf "${RAY_gcs_storage_path:?}"
    mkdir -p "${kept}"
    export RAY_gcs_storage_path="${kept}"
fi
case ${role} in
head) set -- --head --port="${RAY_PORT:-6379}" --include-dashboard=false "$@" ;;
worker) set -- --address="${HOTHOUSE_RAY__ADDRESS:?}" "$@" ;;
*) echo "ray-node.sh: head or worker, not ${role}" >&2 && exit 2 ;;
esac
exec ray start --block --disable-usage-stats --node-ip-address="${address}" "$@"
