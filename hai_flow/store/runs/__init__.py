"""Rows of runs, threads and files: logs, leases, lists. Nothing here appends to a log. Begin with `logs` and
`leases`."""
