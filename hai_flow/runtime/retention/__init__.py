"""Removing and archiving threads whose runs have ended, and bringing them back. A thread is removed whole or not at
all. Begin with `policy`."""
