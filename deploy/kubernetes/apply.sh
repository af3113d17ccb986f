#!/bin/bash
# Applies an overlay to the cluster that KUBECONFIG names. What runs keeps its generation, hothouse-a or hothouse-b, unless it is upgraded.
#   deploy/kubernetes/apply.sh FOLDER              make it so, at the first time and after a change of settings
#   deploy/kubernetes/apply.sh --upgrade FOLDER    a second Ray cluster, of the images that the overlay names now, takes over
#   deploy/kubernetes/apply.sh --abandon           the second one does not come up: back to the first
# In an upgrade the old API goes on answering with the forecasts that it has, until the new one is ready; what comes meanwhile waits
# in the log. NAMESPACE and PATIENCE (600s) may be set.
set -euo pipefail
namespace=${NAMESPACE:-hothouse}
patience=${PATIENCE:-600s}
[[ ${patience} =~ ^[0-9]+s$ ]] || { echo "PATIENCE is ${patience}: name seconds, such as 600s" >&2; exit 2; }
k() { kubectl --namespace "${namespace}" "$@"; }
say() { echo "$(date +%T)  $*"; }
apply() { kubectl apply --server-side --force-conflicts --validate=strict --filename - >/dev/null; }
named() { sed -E "s/hothouse-a([^[:alnum:]_]|\$)/$1\1/g"; } # GENERATION: manifests of that name; by any sed, also that of macOS
kind() { # KIND [NAME]: the documents of that kind, and of that name, of those on standard input
    awk -v kind="kind: $1" -v name="${2:+  name: $2}" 'BEGIN {RS = "---\n"; ORS = "---\n"}
        index("\n" $0, "\n" kind "\n") && (name == "" || index($0, "\n" name "\n"))'
}
ready() { # SELECTOR: the pods whose own container is ready; the autoscaler beside the head's says nothing of it
    k get pods --selector "$1" --output 'jsonpath={range .items[*]}{.metadata.name}{" "}{.status.containerStatuses[?(@.name!="autoscaler")].ready}{"\n"}{end}' |
        awk '$2 == "true" {print $1}'
}
await() { # WHAT SELECTOR: one pod is enough
    say "waiting for $1"
    local limit=$((SECONDS + ${patience%s}))
    until [ -n "$(ready "$2")" ]; do
        ((SECONDS < limit)) || { say "$1 is not ready after ${patience}: apply.sh --abandon goes back" >&2; exit 1; }
        sleep 2
    done
}
await_all() { # WHAT SELECTOR: every pod, for a minute; then those that there are have to do
    await "$@"
    local limit=$((SECONDS + 60)) pods
    pods=$(k get pods --selector "$2" --output name | wc -l)
    until [ "$(ready "$2" | wc -w)" -ge "${pods}" ]; do
        ((SECONDS < limit)) || { say "$1: $(ready "$2" | wc -w) of ${pods} pods are ready; going on" >&2; return 0; }
        sleep 1
    done
}

case ${1:-} in
--abandon | [!-]*) ;;
--upgrade) : "${2:?the folder of an overlay}" ;;
*) sed -n '2,7s/^# //p' "$0" >&2 && exit 2 ;;
esac
now=$(k get service hothouse-api --ignore-not-found --output 'jsonpath={.spec.selector.app\.kubernetes\.io/instance}')
case ${now} in
'' | hothouse-a) next=hothouse-b ;;
hothouse-b) next=hothouse-a ;;
*) echo "the service hothouse-api points to '${now}', which is no generation" >&2 && exit 2 ;;
esac

case ${1:-} in
--abandon)
    k delete deployment,raycluster "${next}" --ignore-not-found
    k delete service "${next}-api" --ignore-not-found
    k scale deployment "${now}" --replicas 1
    k rollout status deployment "${now}" --timeout "${patience}"
    ;;
--upgrade)
    : "${now:?nothing runs yet: apply.sh FOLDER}"
    rendered=$(kubectl kustomize "$2" | named "${next}")
    # What an upgrade before left may still be ending; an object that ends takes no change.
    k delete deployment,raycluster "${next}" --ignore-not-found --cascade foreground --timeout "${patience}" >/dev/null
    say "${now} runs; starting the Ray cluster ${next}"
    # What the new pods are called may be new to the policies. Those of before that have another name stay, and so does what they allow.
    kind NetworkPolicy <<<"${rendered}" | apply
    kind ConfigMap <<<"${rendered}" | apply
    kind Service "${next}-api" <<<"${rendered}" | apply # where it asks itself whether it is ready; the other Service is switched last
    kind RayCluster <<<"${rendered}" | apply
    await "its head" "ray.io/cluster=${next},ray.io/node-type=head"
    # It leaves its application on the cluster (ray.keep_serving), and its state saved.
    say "${now} works no more, and answers"
    k scale deployment "${now}" --replicas 0 >/dev/null
    # A pod of a node that is lost never ends by itself. Killed or not, the owner's file in the storage says when its state may be taken over.
    old="app.kubernetes.io/component=hothouse,app.kubernetes.io/instance=${now}"
    k wait --for delete pod --selector "${old}" --field-selector status.phase=Running --timeout 60s >/dev/null 2>&1 || true
    k delete pod --selector "${old}" --grace-period=0 --force --ignore-not-found >/dev/null 2>&1 || true
    kind Deployment <<<"${rendered}" | apply
    await "hothouse" "app.kubernetes.io/component=hothouse,app.kubernetes.io/instance=${next}"
    await_all "its API" "app.kubernetes.io/instance=${next},app.kubernetes.io/component=ray-api"
    say "requests go to ${next}"
    apply <<<"${rendered}"
    sleep 10 # what was asked of the old one is answered
    k delete deployment,raycluster "${now}" --wait=false >/dev/null
    k delete service "${now}-api" --ignore-not-found >/dev/null
    say "${next} runs, and ${now} is being removed"
    ;;
*)
    runs=${now:-hothouse-a}
    parts='' # a site with nothing but a gateway has no Ray cluster, and its Kubernetes may not know what that is
    [ -z "${now}" ] || parts=$(k get raycluster "${runs}" --ignore-not-found \
        --output 'jsonpath={.spec.workerGroupSpecs[*].template.metadata.labels.app\.kubernetes\.io/component}')
    if [ -n "${parts}" ] && [[ " ${parts} " != *" ray-api "* ]]; then
        echo "the Ray cluster ${runs} is of a release without pods for the API, and would not answer: apply.sh --upgrade $1" >&2
        exit 2
    fi
    kubectl kustomize "$1" | named "${runs}" | apply
    ;;
esac
