"""Tenants in several databases: which cell a thread lives in, and what cells tell each other. Begin with `cells`."""
