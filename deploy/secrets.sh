#!/bin/sh
# Makes what the compose file reads from deploy/secrets: passwords of broker logins with their rules, the token of the Ray cluster,
# logins of InfluxDB, of the object store, of Grafana and of the mail server. Files are readable by their owner alone, the user that the containers run as. What is there stays.
set -eu
umask 077
cd "$(dirname "$0")"

setting() { # NAME: of the environment, or what .env says
    eval "found=\${$1:-}"
    [ -n "${found}" ] || [ ! -f .env ] || found=$(tr -d '\r' <.env | sed -n "s/^$1=[\"']\{0,1\}\([^\"' ]*\).*/\1/p" | tail -n 1)
    printf %s "${found}"
}

# Containers run as who owns the files; root gives them away, for no container of ours runs as root.
uid=$(setting HOTHOUSE_UID)
case ${uid} in *[!0-9]* | 0*)
    echo "secrets: HOTHOUSE_UID, here or in deploy/.env, is '${uid}': it is the number of a user that is not root, such as 10001" >&2
    exit 2
    ;;
esac
if [ "$(id -u)" = 0 ]; then
    uid=${uid:-10001}
elif [ "${uid:=$(id -u)}" != "$(id -u)" ]; then
    echo "secrets: containers run as user ${uid} (HOTHOUSE_UID, here or in deploy/.env), who could not read what user $(id -u) makes:" \
        "run this as that user, or as root, or, where nothing runs here yet, remove HOTHOUSE_UID there" >&2
    exit 2
fi
mkdir -p secrets
# What the broker reads takes its place when it is whole: a broker that starts again meanwhile knows all logins.
trap 'rm -f secrets/logins secrets/mosquitto_acl.new secrets/mosquitto_passwords.new' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

random() { # 64 hexadecimal digits
    od -An -N32 -tx1 /dev/urandom | tr -d ' \n'
}

keep() { # FILE COMMAND...: the command's output, unless the file has something in it
    file=secrets/$1
    shift
    [ -s "${file}" ] || "$@" >"${file}"
}

# Names are checked: one rule that the broker cannot read, as of a device z1+, and it does not start.
is_name() {
    case $1 in '' | *[!A-Za-z0-9_.-]*) return 1 ;; *) ;; esac
}

is_device() { # SITE/ZONE/DEVICE; + alone is any
    rest=${1#*/}
    for part in "${1%%/*}" "${rest%%/*}" "${rest#*/}"; do
        [ "${part}" = + ] || is_name "${part}" || return 1
    done
}

refuse() { # DEVICE
    echo "logins: $1 is no site/zone/device, site/_uplink, clock or homeassistant (names: letters a to z, digits and . _ -)" >&2
    exit 2
}

influx_token() {
    printf 'hothouse:%s' "$(random)"
}

storage_credentials() { # in the form of ~/.aws/credentials
    printf '[default]\naws_access_key_id = hothouse\naws_secret_access_key = %s\n' "$(random)"
}

keep ray_token random
keep grafana_password random
keep alert_mail_password random # of the mail server that deploy/alertmanager/alertmanager.yml names: put yours there
keep storage_credentials storage_credentials
keep influx_token influx_token

# Goes into the gateways' client ids: who knows one is given what the broker keeps for that gateway. Gateways of before have sessions
# under ids without it, and keep them (docs/gateways.md, the gateway's session).
if [ ! -e secrets/gateway_session ]; then
    if [ -s secrets/mqtt_gateway ]; then : >secrets/gateway_session; else keep gateway_session random; fi
fi

# Goes into the client id of what the system tells Home Assistant: who knows it can cut that off, again and again.
keep system_session random

# Rules: the gateway reads everything, says that it is there, and may change how rows are made; the system publishes alerts, and what
# people order by the API, and what Home Assistant reads where it has a login; a login writes for its devices, or is that one.
logins="gateway system"
acl=secrets/mosquitto_acl.new
cat >"${acl}" <<'RULES'
user gateway
topic read hothouse/#
topic write hothouse/presence/+
topic write hothouse/v1/+/+/+/event

user system
topic write hothouse/v1/+/+/+/event
topic write hothouse/v1/+/+/+/plan
topic write hothouse/v1/+/+/alert/+
RULES
if grep -Eq '^[^#]+[[:space:]]homeassistant([[:space:]]|$)' mosquitto/logins; then
    cat >>"${acl}" <<'RULES'
topic write hothouse/state/#
topic write hothouse/presence/+
topic write homeassistant/device/+/config
topic read homeassistant/status
RULES
fi
set -f # + and * of a line are not for the shell
tr -d '\r' <mosquitto/logins >secrets/logins # some editors end lines with it
while read -r login devices || [ -n "${login}" ]; do # also the last line, where an editor did not end it
    case ${login} in
    '' | '#'*) continue ;;
    gateway | system) echo "logins: ${login} is a login of our own" >&2 && exit 2 ;;
    *) is_name "${login}" || { echo "logins: ${login} is no login: letters a to z, digits and . _ -" >&2 && exit 2; } ;;
    esac
    logins="${logins} ${login}"
    printf '\nuser %s\n' "${login}" >>"${acl}"
    for device in ${devices}; do
        case ${device} in
        clock) echo "topic write hothouse/v1/_clock" ;;
        homeassistant) # and what Hothouse publishes for it
            echo "topic readwrite homeassistant/#"
            echo "topic read hothouse/state/#"
            echo "topic read hothouse/presence/#"
            ;;
        */*/*)
            is_device "${device}" || refuse "${device}"
            for kind in sample plan event; do echo "topic write hothouse/v1/${device}/${kind}"; done
            ;;
        */_uplink) # what a site's gateway sends on, and there what came on topics of no site
            is_name "${device%/_uplink}" || refuse "${device}"
            echo "topic write hothouse/v1/${device}/+/record"
            echo "topic write hothouse/v1/_unknown/_uplink/+/record"
            ;;
        *) refuse "${device}" ;;
        esac >>"${acl}"
    done
done <secrets/logins

# Passwords stand in a file a login; the broker gets their hashes. Nothing secret is an argument, which others could list.
: >secrets/mosquitto_passwords.new
for login in ${logins}; do
    keep "mqtt_${login}" random
    printf '%s:%s\n' "${login}" "$(cat "secrets/mqtt_${login}")" >>secrets/mosquitto_passwords.new
done
image=$(setting MOSQUITTO_IMAGE)
docker run --rm --network none --user "$(id -u):$(id -g)" --volume "${PWD}/secrets:/secrets" --entrypoint mosquitto_passwd \
    "${image:-eclipse-mosquitto:2}" -U /secrets/mosquitto_passwords.new
for file in mosquitto_acl mosquitto_passwords; do mv "secrets/${file}.new" "secrets/${file}"; done

[ "$(id -u)" != 0 ] || chown -R "${uid}:${uid}" secrets
# Containers of other users read what is mounted beside the secrets, also where a checkout was made with umask 077.
for folder in alertmanager front grafana influxdb mosquitto prometheus storage; do
    [ ! -d "${folder}" ] || find "${folder}" '(' -type d ! -perm -005 -o -type f ! -perm -004 ')' -exec chmod go+rX {} +
done
# Some editors do not end the last line.
[ ! -s .env ] || [ -z "$(tail -c 1 .env)" ] || echo >>.env
grep -qs '^COMPOSE_PROFILES=' .env || printf 'COMPOSE_PROFILES=full\n' >>.env
[ -n "$(HOTHOUSE_UID='' setting HOTHOUSE_UID)" ] || printf 'HOTHOUSE_UID=%s\n' "${uid}" >>.env
echo "deploy/secrets holds $(find secrets -type f | wc -l) files for user ${uid}"
