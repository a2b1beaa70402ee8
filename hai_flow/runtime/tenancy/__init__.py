"""Tenants: their limits and quotas, and the cell of each thread. Begin with `tenants`."""
