"""Breaks a deployment on purpose, and checks whether it keeps its promises all the same (docs/chaos.md).

plan       which faults come when: drawn from a seed, pure
stage      the deployment: a PostgreSQL of its own (`keeper`), real processes (`seats`), a `proxy` in front of each
faults     performs the faults of a plan
flows      the workflows that it performs, with their `tools` and the world that these act on (`effects`)
clients    people and programs that use it, and write down the answers they get (`history`)
oracle     compares these answers, and the effects on the world, with the log; `verify` compares the log with itself
campaign   runs all of it, from beginning to end; `report` writes its result as a page

Nothing here is used by the product, and the product knows nothing of it: processes are started as an operator starts
them, and broken from outside.
"""
