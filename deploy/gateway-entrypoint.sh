#!/bin/sh
# Entry point of a container that runs the gateway alone. Environment and secret files become its options:
#   GATEWAY_OPTION_HOST=broker.example     --host broker.example     (any option of `python -m edge.gateway --help`)
#   GATEWAY_OPTION_UPLINK=mqtt://central   --uplink mqtt://central
#   /run/secrets/password                  --password-file /run/secrets/password   (also kafka-, uplink-; tls-ca likewise)
# Secrets come as files only: a variable would be seen by whoever may look at the container. Arguments are added at the
# end and win. Runs as any user who may write the log's folder; the gateway replaces this shell, so signals reach it.
# The prefix is none that Kubernetes makes up for a service (GATEWAY_PORT, for one that is called "gateway").
set -eu
umask 077

secrets=${GATEWAY_SECRETS_DIR:-/run/secrets}
: "${GATEWAY_OPTION_LOG:=/var/lib/hothouse/log.sqlite}"
export GATEWAY_OPTION_LOG

case ${GATEWAY_OPTION_LOG} in
kafka:*) ;;
*)
    folder=$(dirname "${GATEWAY_OPTION_LOG}")
    if ! [ -d "${folder}" ] || ! [ -w "${folder}" ]; then
        echo "gateway: user $(id -u) cannot write the folder ${folder}: mount a volume there that it owns" >&2
        exit 2
    fi
    : "${GATEWAY_OPTION_STATUS_FILE:=${folder}/gateway-status.json}"
    export GATEWAY_OPTION_STATUS_FILE
    ;;
esac

for name in $(env | sed -n 's/^GATEWAY_OPTION_\([A-Z0-9_]*\)=.*/\1/p' | sort); do
    case ${name} in
    PASSWORD | *_PASSWORD)
        echo "gateway: GATEWAY_OPTION_${name} holds a secret; put it into a file and set GATEWAY_OPTION_${name}_FILE" >&2
        exit 2
        ;;
    *) ;;
    esac
    eval "value=\${GATEWAY_OPTION_${name}}" # the name holds nothing but letters, digits and _
    [ -n "${value}" ] || continue
    set -- "--$(echo "${name}" | tr 'A-Z_' 'a-z-')" "${value}" "$@"
done

for prefix in '' kafka- uplink-; do
    [ ! -f "${secrets}/${prefix}password" ] || set -- "--${prefix}password-file" "${secrets}/${prefix}password" "$@"
    [ ! -f "${secrets}/${prefix}tls-ca" ] || set -- "--${prefix}tls-ca" "${secrets}/${prefix}tls-ca" "$@"
done

exec "${PYTHON:-python3}" -m edge.gateway "$@"
