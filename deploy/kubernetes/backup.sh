#!/bin/bash
# The state of an installation into a folder, and from there into an empty one, on the cluster that KUBECONFIG names.
#   deploy/kubernetes/backup.sh FOLDER                     while it runs: hothouse.tar and mlflow.tar
#   deploy/kubernetes/backup.sh --restore FOLDER OVERLAY   a bucket that is empty, and a namespace that has its secrets and nothing else
# Not in the folder: Kafka's topic, which must be there with its offsets, InfluxDB, and the secrets of deploy/secrets.
# NAMESPACE and PATIENCE (600s) may be set.
set -euo pipefail
umask 077
namespace=${NAMESPACE:-hothouse}
patience=${PATIENCE:-600s}
k() { kubectl --namespace "${namespace}" "$@"; }
say() { echo "$(date +%T)  $*"; }
apply() { kubectl apply --server-side --force-conflicts --validate=strict --filename - "$@" >/dev/null; }
digest() { if command -v sha256sum >/dev/null; then sha256sum; else shasum -a 256; fi; } # macOS had no sha256sum for long
fetch() { # POD FILE TO: a file of a pod; a stream that ended early is seen
    k exec "$1" -- cat "$2" >"$3" || { echo "$3 did not come" >&2; exit 1; }
    [ "$(digest <"$3")" = "$(k exec -i "$1" -- sh -c "sha256sum <$2")" ] || { echo "$3 came in part only" >&2; exit 1; }
}
# The registry's database is copied as of one moment, whoever writes; what it names is in a folder beside it.
copy='import sqlite3, sys; source, target = map(sqlite3.connect, sys.argv[1:]); source.backup(target); target.close()'
registry=/var/lib/mlflow/mlflow.sqlite

case ${1:-} in
--restore)
    from=${2:?the folder of a backup} overlay=${3:?the folder of an overlay}
    part=app.kubernetes.io/component
    rendered=$(kubectl kustomize "${overlay}")
    say "starting all but hothouse, whose pod only waits"
    apply --selector "${part}!=hothouse" <<<"${rendered}"
    kubectl create --filename - --selector "${part}=hothouse" --dry-run=client --output yaml <<<"${rendered}" |
        kubectl patch --local --filename - --output yaml --patch '{"spec": {"template": {"spec": {"containers": [{"name": "hothouse",
            "command": ["sh", "-c", "trap exit TERM; sleep infinity & wait"], "startupProbe": null, "readinessProbe": null,
            "livenessProbe": null}]}}}}' | apply
    k rollout status deployment hothouse-a --timeout "${patience}" >/dev/null
    k rollout status statefulset mlflow --timeout "${patience}" >/dev/null
    say "bringing the registry back"
    k exec -i mlflow-0 -- tar -C /tmp -x <"${from}/mlflow.tar"
    k exec mlflow-0 -- sh -c "cp -r /tmp/artifacts/. /var/lib/mlflow/artifacts && python3 -c '${copy}' /tmp/mlflow.sqlite ${registry}"
    k delete pod mlflow-0 --wait=false >/dev/null
    say "bringing the state back"
    k exec -i deployment/hothouse-a -- sh -c 'cat >/tmp/hothouse.tar && hothouse restore /tmp/hothouse.tar' <"${from}/hothouse.tar"
    say "starting hothouse"
    apply <<<"${rendered}"
    ;;
'' | -*) sed -n '2,7s/^# //p' "$0" >&2 && exit 2 ;;
*)
    now=$(k get service hothouse-api --output 'jsonpath={.spec.selector.app\.kubernetes\.io/instance}')
    mkdir -p "$1"
    k exec "deployment/${now}" -- sh -c 'rm -f /tmp/hothouse.tar && hothouse backup /tmp/hothouse.tar'
    # What an earlier backup left in the folder stays until both files are here: one alone does not fit the other.
    part=$(mktemp -d "$1/.part-XXXXXX")
    trap 'rm -rf "${part}"' EXIT
    fetch "deployment/${now}" /tmp/hothouse.tar "${part}/hothouse.tar"
    # Not before Hothouse: a champion that its state names must be in the registry.
    k exec mlflow-0 -- sh -c "mkdir -p /var/lib/mlflow/artifacts && python3 -c '${copy}' ${registry} /tmp/mlflow.sqlite &&
        tar -C /tmp -cf /tmp/mlflow.tar mlflow.sqlite -C /var/lib/mlflow artifacts"
    fetch mlflow-0 /tmp/mlflow.tar "${part}/mlflow.tar"
    sync "${part}/hothouse.tar" "${part}/mlflow.tar"
    mv "${part}/hothouse.tar" "${part}/mlflow.tar" "$1"
    k exec "deployment/${now}" -- rm /tmp/hothouse.tar
    k exec mlflow-0 -- rm -r /tmp/mlflow.tar /tmp/mlflow.sqlite
    say "$1 has $(du -ch "$1/hothouse.tar" "$1/mlflow.tar" | tail -n 1 | cut -f 1)"
    ;;
esac
