#!/bin/sh
# The object store: Versity's gateway over the folder of its volume. The login comes in by a file, so that it is in no list of
# processes and in no container's settings; the bucket is a folder.
set -eu
login=/run/secrets/storage_credentials
ROOT_ACCESS_KEY_ID=$(sed -n 's/^aws_access_key_id *= *//p' "${login}")
ROOT_SECRET_ACCESS_KEY=$(sed -n 's/^aws_secret_access_key *= *//p' "${login}")
export ROOT_ACCESS_KEY_ID ROOT_SECRET_ACCESS_KEY
mkdir -p /data/buckets/hothouse /data/attributes
exec versitygw --quiet --health /health posix --sidecar /data/attributes /data/buckets
