#!/bin/bash
# Healthy once the system that runs on the data folder answers for at least one zone; with `live`: once it answers at all.
# No Python: this runs every few seconds.
set -eu
url=$(sed -n 's|.*"url": "http://\([^"]*\)".*|\1|p' "${HOTHOUSE_DATA_DIR}/run.json") # with the path of api.route, if it has one
address=${url%%/*}
exec 3<>"/dev/tcp/${address%:*}/${address##*:}"
printf 'GET %s/health/%s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n' "${url#"${address}"}" "${1:-ready}" "${address}" >&3
read -r _ status _ <&3
[ "${status}" = 200 ]
