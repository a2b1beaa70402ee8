#!/bin/sh
# Makes the secrets of compose.yaml, each in a file below `secrets`, unless they are there. It overwrites nothing.
set -eu
umask 077
cd "$(dirname "$0")"
if [ -e secrets/database_url ]; then
  echo "deploy/compose/secrets is there already; nothing was changed."
  exit 0
fi
mkdir -p secrets
random() { od -An -N24 -tx1 /dev/urandom | tr -d ' \n'; }
for name in postgres_password owner_password password metrics_token grafana_password; do
  random > "secrets/$name"
done
# Last of all: who finds it finds all of them.
printf 'postgresql://hai_flow_owner:%s@postgres:5432/hai_flow' "$(cat secrets/owner_password)" > secrets/owner_url
printf 'postgresql://hai_flow:%s@postgres:5432/hai_flow' "$(cat secrets/password)" > secrets/database_url
# The containers' users are others than yours, and see these files as they are; the folder keeps others out.
chmod 0644 secrets/*
echo "Made the secrets in deploy/compose/secrets."
