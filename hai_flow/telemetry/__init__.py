"""Operators' view of a process: metrics, traces, and the listener that shows them.

Nothing here decides anything. The runtime calls its listeners (`runtime/commit/hooks`), and values that it has anyway
are read at each look. `instruments` count, `exposition` writes them for Prometheus; `metrics` defines the numbers and
their meaning; `database_gauges` shows counts that only the database can give, counted by one process for all;
`listener` answers `/metrics`, `/healthz` and `/readyz` on a port of its own."""
