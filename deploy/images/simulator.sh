#!/bin/sh
# The simulated greenhouse, in a container, SIMULATOR_SPEED times real time. Faster than the wall clock it is ahead of that, and
# a log takes no samples of the past: so it goes on in time where it stopped. With SIMULATOR_MESSAGES what it publishes is written
# down, a file a start; without it nothing is, for it would fill the disk.
set -eu
folder=${SIMULATOR_FOLDER:-/var/lib/hothouse}
speed=${SIMULATOR_SPEED:-1}
status=${folder}/status.json
if [ "${speed}" != 1 ] && [ -f "${status}" ]; then
    stopped_ms=$(sed -n 's/.*"now_ms": \([0-9]*\).*/\1/p' "${status}")
    [ -z "${stopped_ms}" ] || set -- --start-ms "${stopped_ms}" "$@"
fi
rm -f "${folder}"/messages-*.tsv # of releases that wrote it down always
[ -z "${SIMULATOR_MESSAGES:-}" ] || set -- --messages-file "${folder}/published-$(date +%s).tsv" "$@"
# shellcheck disable=SC2086 # options are words
exec hothouse simulate --speed "${speed}" --status-file "${status}" ${SIMULATOR_OPTIONS:-} "$@"
