#!/bin/sh
# A node of the Ray cluster: `ray-node.sh head` or `ray-node.sh worker`, each with more options of `ray start`.
# Ends when the node does, so that the container is started again; KubeRay runs the same two commands.
set -eu
role=$1
shift
address=$(hostname -i | cut -d' ' -f1)
case ${role} in
head) set -- --head --port="${RAY_PORT:-6379}" --include-dashboard=false "$@" ;;
worker) set -- --address="${HOTHOUSE_RAY__ADDRESS:?}" "$@" ;;
*) echo "ray-node.sh: head or worker, not ${role}" >&2 && exit 2 ;;
esac
exec ray start --block --disable-usage-stats --node-ip-address="${address}" "$@"
