"""Commands that are processes: `dev`, `serve`, `worker`, `migrate`. Begin with `processes`."""
