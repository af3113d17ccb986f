#!/bin/sh
# Healthy while the simulated greenhouse runs, once the broker has acknowledged something: its status is written each second.
set -eu
status=${SIMULATOR_FOLDER:-/var/lib/hothouse}/status.json
[ -n "$(find "${status}" -mmin -1)" ] && grep -q '"acked": [1-9]' "${status}"
