"""Runs as requests see them: their start, their history and branches, queued messages and slots of concurrency.
Every change goes through the committer. Begin with `starts`."""
