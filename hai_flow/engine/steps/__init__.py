"""What concerns a step of any verb: its start, retry, skipping, waiting for signals and slots, calls of tools."""
