"""Routes for administrators: tenants, keys, tokens, workers, the audit log."""
