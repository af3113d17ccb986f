#!/bin/sh
# Entry point of a container that runs the gateway alone. What it does are settings, as everywhere: a file that HOTHOUSE_CONFIG
# names, and variables, which win over it (docs/configuration.md).
#   HOTHOUSE_MQTT__HOST=broker.example       mqtt.host
#   HOTHOUSE_UPLINK__TO=mqtt://central       uplink.to
#   /run/secrets/password, /run/secrets/tls-ca   mqtt.password_file, mqtt.tls_ca_file (also kafka-, uplink-): what is mounted there wins over
#                                            the file of HOTHOUSE_CONFIG; a variable wins over both
#   /run/secrets/tls-cert, /run/secrets/tls-key  the certificate that a server is shown which asks for one, likewise
#   /run/secrets/session-secret              mqtt.session_secret_file, likewise
# Secrets come as files only: a variable would be seen by whoever may look at the container. Runs as any user who may write the
# log's folder; the gateway replaces this shell, so signals reach it.
set -eu
umask 077

# The options of before: the gateway says which setting took the place of each. Values are not passed on.
for name in $(env | sed -n 's/^GATEWAY_OPTION_\([A-Z0-9_]*\)=.*/\1/p' | sort); do
    exec "${PYTHON:-python3}" -m edge.gateway "--$(echo "${name}" | tr 'A-Z_' 'a-z-')"
done

if [ -z "${HOTHOUSE_CONFIG:-}" ]; then # else the file says where the log is
    : "${HOTHOUSE_DATA_DIR:=/var/lib/hothouse}"
    export HOTHOUSE_DATA_DIR
    if [ "${HOTHOUSE_LOG__KIND:-sqlite}" = sqlite ] && ! { [ -d "${HOTHOUSE_DATA_DIR}" ] && [ -w "${HOTHOUSE_DATA_DIR}" ]; }; then
        echo "gateway: user $(id -u) cannot write the folder ${HOTHOUSE_DATA_DIR}: mount a volume there that it owns" >&2
        exit 2
    fi
fi

secrets=${GATEWAY_SECRETS_DIR:-/run/secrets}
secret() { # FILE VARIABLE: the file of that name, where nothing else is set
    if [ -f "${secrets}/$1" ] && eval "[ -z \"\${$2:-}\" ]"; then
        export "$2=${secrets}/$1"
    fi
}
secret password HOTHOUSE_MQTT__PASSWORD_FILE
secret session-secret HOTHOUSE_MQTT__SESSION_SECRET_FILE
secret tls-ca HOTHOUSE_MQTT__TLS_CA_FILE
secret tls-cert HOTHOUSE_MQTT__TLS_CERT_FILE
secret tls-key HOTHOUSE_MQTT__TLS_KEY_FILE
secret kafka-password HOTHOUSE_KAFKA__PASSWORD_FILE
secret kafka-tls-ca HOTHOUSE_KAFKA__TLS_CA_FILE
secret kafka-tls-cert HOTHOUSE_KAFKA__TLS_CERT_FILE
secret kafka-tls-key HOTHOUSE_KAFKA__TLS_KEY_FILE
secret uplink-password HOTHOUSE_UPLINK__PASSWORD_FILE
secret uplink-tls-ca HOTHOUSE_UPLINK__TLS_CA_FILE
secret uplink-tls-cert HOTHOUSE_UPLINK__TLS_CERT_FILE
secret uplink-tls-key HOTHOUSE_UPLINK__TLS_KEY_FILE

exec "${PYTHON:-python3}" -m edge.gateway "$@"
