#!/bin/sh
# Healthy once the system that runs on the data folder answers for at least one zone.
set -eu
url=$(sed -n 's/.*"url": "\([^"]*\)".*/\1/p' "${HOTHOUSE_DATA_DIR}/run.json")
exec python3 -c 'import sys, urllib.request; urllib.request.urlopen(sys.argv[1] + "/health/ready", timeout=4)' "${url:?}"
