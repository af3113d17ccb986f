#!/bin/sh
# Brings the secrets of deploy/secrets, which `make secrets` makes, into a namespace, and makes what only Kubernetes needs: the password
# of Redis, the operator's key, and certificates of the broker and of Redis by an authority of its own. What is there stays; nothing is
# printed, and nothing secret is an argument.   deploy/kubernetes/secrets.sh [NAMESPACE] [NAME-OR-ADDRESS-OF-THE-BROKER...]
set -eu
umask 077
namespace=${1:-hothouse}
[ $# = 0 ] || shift
cd "$(dirname "$0")/../secrets" || { echo "run make secrets first" >&2; exit 2; }

random() { od -An -N32 -tx1 /dev/urandom | tr -d ' \n'; }
for file in redis_password operator_key; do
    [ -s "${file}" ] || random >"${file}"
done

mkdir -p tls
if [ ! -s tls/ca.crt ]; then
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 3650 -subj "/CN=Hothouse's own authority" \
        -keyout tls/ca.key -out tls/ca.crt -addext basicConstraints=critical,CA:TRUE -addext keyUsage=critical,keyCertSign 2>/dev/null
fi
fits() { # FILE NAMES: whether the certificate is good for a month yet, and for all of these names
    [ -s "$1" ] && openssl x509 -in "$1" -noout -checkend 2592000 >/dev/null || return 1
    has=",$(openssl x509 -in "$1" -noout -ext subjectAltName | tail -n 1 | tr -d ' '),"
    for each in $(echo "$2" | tr ',' ' '); do
        case ${each} in
        IP:*) openssl x509 -in "$1" -noout -checkip "${each#IP:}" | grep -q 'does match' || return 1 ;;
        *) case ${has} in *",${each},"*) ;; *) return 1 ;; esac ;;
        esac
    done
}
is_address() { # whether openssl takes it for one: of any other words it says that every certificate is theirs
    case $1 in *[!0-9A-Fa-f.:]* | '') return 1 ;; esac
    openssl x509 -in tls/ca.crt -noout -checkip "$1" | grep -q 'NOT match'
}
certificate() { # FILE SERVICE [NAME-OUTSIDE...]: for the names that a service has in the cluster, and others
    file=tls/$1 service=$2
    shift 2
    names=DNS:localhost
    for name in "${service}" "${service}.${namespace}" "${service}.${namespace}.svc" "${service}.${namespace}.svc.cluster.local" "$@"; do
        # Who is given an address looks for it among addresses, and not among names.
        if is_address "${name}"; then names="${names},IP:${name}" && continue; fi
        case ${name} in
        *[!A-Za-z0-9._*-]*) ;;
        *[A-Za-z]*) names="${names},DNS:${name}" && continue ;;
        esac
        echo "'${name}' is neither a name nor an address: write broker.example or 192.0.2.7, without a port" >&2
        exit 2
    done
    ! fits "${file}.crt" "${names}" || return 0
    openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj "/CN=${service}" -keyout tls/key -out tls/csr 2>/dev/null
    printf 'subjectAltName=%s\nextendedKeyUsage=serverAuth\nbasicConstraints=CA:FALSE\n' "${names}" >tls/extensions
    openssl x509 -req -in tls/csr -CA tls/ca.crt -CAkey tls/ca.key -days 825 -extfile tls/extensions -out tls/crt 2>/dev/null
    mv tls/key "${file}.key" && mv tls/crt "${file}.crt"
    rm -f tls/csr tls/extensions tls/ca.srl
}
certificate tls mosquitto "$@" # devices check the broker's name, also those that it has outside
certificate redis redis

secret() { # NAME KEY=FILE...
    name=$1
    shift
    for each in "$@"; do
        set -- "$@" "--from-file=${each}"
        shift
    done
    kubectl --namespace "${namespace}" create secret generic "${name}" "$@" --dry-run=client --output json |
        kubectl --namespace "${namespace}" apply --server-side --force-conflicts --filename - >/dev/null
}
secret hothouse-ray auth_token=ray_token
secret hothouse-redis password=redis_password
secret hothouse-storage credentials=storage_credentials
secret hothouse-influx token=influx_token
secret hothouse-operator key=operator_key
secret hothouse-mqtt-gateway password=mqtt_gateway session-secret=gateway_session
secret hothouse-mqtt-system password=mqtt_system session-secret=system_session
secret hothouse-mosquitto passwords=mosquitto_passwords acl=mosquitto_acl
secret hothouse-redis-tls tls.crt=tls/redis.crt tls.key=tls/redis.key ca.crt=tls/ca.crt
secret hothouse-mosquitto-tls tls.crt=tls/tls.crt tls.key=tls/tls.key ca.crt=tls/ca.crt
until=$(openssl x509 -in tls/tls.crt -noout -enddate) redis=$(openssl x509 -in tls/redis.crt -noout -enddate)
echo "the namespace ${namespace} has its secrets; the broker's certificate is good until ${until#*=}, that of Redis until ${redis#*=}:" \
    "run this again in the month before, with the same arguments (docs/kubernetes.md says how broker and Redis take the new ones)"
