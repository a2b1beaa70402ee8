"""Tenants, API keys, sessions and tickets, and the erasure of people. Secrets are stored as hashes or sealed. Begin
with `keys`."""
