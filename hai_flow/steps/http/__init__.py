"""Requests over HTTP: steps of the verb `http`, and tools that are described by OpenAPI.

`runner` performs a request, `tools` makes requests of calls, `stream` reads a streamed answer. `transport` connects
to those addresses only that `egress` allows."""
