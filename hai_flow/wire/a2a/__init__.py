"""Runs as agents of A2A show them, in 1.0 and 0.3, and their calls when a task changes. Pure. Begin with `tasks`."""
