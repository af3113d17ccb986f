#!/bin/sh
# Healthy while the broker acknowledges what the simulated greenhouse publishes: its status is written each second.
set -eu
status=${SIMULATOR_FOLDER:-/var/lib/hothouse}/status.json
[ -n "$(find "${status}" -mmin -1)" ] && grep -q '"acked": [1-9]' "${status}"
