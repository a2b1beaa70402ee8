"""Measures the costs of the system on this machine, against a plain reference on the same PostgreSQL in the same
minutes.

Rates of different machines say little; ratios of interleaved rounds say much. So every number of a report is a median,
and every key of it is a ratio: of the whole engine to a bare group commit (`throughput`), of a resumed run to one
durable commit (`resume`), of a committed event's way to many followers to a bare Starlette stream (`fanout`), of a
process beside many suspended runs to one beside few (`memory`).
"""
