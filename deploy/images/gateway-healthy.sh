#!/bin/bash
# Healthy while the gateway is connected to its broker: it serves its figures at gateway.metrics_port.
set -eu
exec 3<>"/dev/tcp/127.0.0.1/${HOTHOUSE_GATEWAY__METRICS_PORT:?}"
printf 'GET /metrics HTTP/1.0\r\n\r\n' >&3
grep -q '^hothouse_gateway_connected 1' <&3
