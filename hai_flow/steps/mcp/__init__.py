"""Calls of tools of MCP servers: connections, transports, schemas and results.

`runner` performs a step's call. `connections` keeps the sessions, over `http` or `stdio`; `messages` and
`tolerant_reader` read what passes, `elicitation` takes a server's questions to people, and `results` and `schemas` make
values of it."""
