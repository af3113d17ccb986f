#!/bin/sh
# Makes InfluxDB's user and database, once. The first user can be made without a login; after that this only looks. The password
# comes in by a file and goes out by files and standard input, so that it is in no list of processes.
set -eu
umask 077
user=$(cut -d: -f1 /run/secrets/influx_token)
password=$(cut -d: -f2- /run/secrets/influx_token)
url=${INFLUXDB_URL:-http://influxdb:8086}/query
printf 'user = "%s:%s"\n' "${user}" "${password}" >/tmp/login

ask() { # the query, on standard input
    curl --silent --show-error --fail --retry 20 --retry-connrefused --retry-delay 1 --output /dev/null \
        --data-urlencode q@- "$@" "${url}"
}

printf 'SHOW DATABASES' | ask --config /tmp/login 2>/dev/null ||
    printf "CREATE USER \"%s\" WITH PASSWORD '%s' WITH ALL PRIVILEGES" "${user}" "${password}" | ask
printf 'CREATE DATABASE "hothouse"' | ask --config /tmp/login
echo "user ${user} and database hothouse are there"
