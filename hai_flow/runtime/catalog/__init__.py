"""Workflows as a process knows them: found, compiled, pinned and cached. It publishes versions and must not start
runs. Begin with `catalog`."""
