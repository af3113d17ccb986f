#!/bin/sh
# Healthy while the gateway is connected to its broker. It serves its figures where it is told --metrics-port.
exec python3 -c '
import sys, urllib.request
found = urllib.request.urlopen("http://127.0.0.1:'"${GATEWAY_OPTION_METRICS_PORT:?}"'/metrics", timeout=4).read()
sys.exit(b"\nhothouse_gateway_connected 1\n" not in found)'
