"""Live streams of runs and threads: each process reads a run once for all of its followers. Hints only wake it; the
log is the truth. Begin with `fanout`."""
