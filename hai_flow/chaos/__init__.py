"""Breaking a deployment on purpose, and holding what it did against what it promised (docs/chaos.md).

plan       which faults come when: drawn from a seed, pure
stage      the deployment: a PostgreSQL of its own (`keeper`), real processes (`seats`), a `proxy` in front of each
faults     what is done to it
flows      the workflows that it performs, with their `tools` and the world that these act on (`effects`)
clients    people and programs that use it, and write down what they were told (`history`)
oracle     what they were told, and what the world saw, held against the log, as `verify` holds the log against itself
campaign   all of it, from beginning to end; `report` tells it

Nothing here is used by the product, and the product knows nothing of it: processes are started as an operator starts
them, and broken from outside.
"""
