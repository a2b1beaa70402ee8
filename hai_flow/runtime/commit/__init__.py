"""Group commit: commands are queued by run, decided by the engine and committed, up to 256 runs in one statement.
Nothing else may append to a log. Begin with `committer` (the door), then `lanes` and `decider`."""
