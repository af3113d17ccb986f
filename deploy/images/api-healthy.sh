#!/bin/bash
# Healthy once the system that runs on the data folder answers for at least one zone; with `live`: once it answers at all.
# No Python where HTTP is spoken: this runs every few seconds.
set -eu
url=$(sed -n 's|.*"url": "\(https\{0,1\}://[^"]*\)".*|\1|p' "${HOTHOUSE_DATA_DIR}/run.json") # with the path of api.route, if it has one
if [ "${url%%:*}" = https ]; then # api.url names a balancer; whose certificate it has is for those to check who send it a key
    exec python3 -c 'import ssl, sys, urllib.request as web
way = web.build_opener(web.ProxyHandler({}), web.HTTPSHandler(context=ssl._create_unverified_context()))
sys.exit(way.open(sys.argv[1], timeout=4).status != 200)' "${url}/health/${1:-ready}"
fi
url=${url#http://}
address=${url%%/*}
host=${address} port=80
if [[ ${address} =~ ^(.*):([0-9]+)$ ]]; then # not the last part of [::1]
    host=${BASH_REMATCH[1]} port=${BASH_REMATCH[2]}
fi
host=${host#[} host=${host%]}
exec 3<>"/dev/tcp/${host}/${port}"
printf 'GET %s/health/%s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n' "${url#"${address}"}" "${1:-ready}" "${address}" >&3
read -r _ status _ <&3
[ "${status}" = 200 ]
