"""`hai-flow run`: one run in the foreground, as a conversation. Begin with `run`."""
