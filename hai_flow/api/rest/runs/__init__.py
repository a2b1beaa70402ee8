"""Routes of runs and threads: start, read, control, history, live lists."""
