"""The routes under /v1, by resource. Each route checks its right, calls the runtime and answers with a schema. Begin
with `runs/runs`."""
