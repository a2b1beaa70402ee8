#!/bin/sh
# The roles and the database, as docs/production.md says. PostgreSQL's image runs it once, in an empty data directory.
set -eu
psql -v ON_ERROR_STOP=1 --username postgres \
  -v owner_password="$(cat /run/secrets/owner_password)" -v password="$(cat /run/secrets/password)" <<'SQL'
CREATE ROLE hai_engine NOLOGIN;
CREATE ROLE hai_api NOLOGIN;
CREATE ROLE hai_flow_owner LOGIN PASSWORD :'owner_password';
CREATE ROLE hai_flow LOGIN PASSWORD :'password';
GRANT hai_engine, hai_api TO hai_flow;
CREATE DATABASE hai_flow OWNER hai_flow_owner;
SQL
