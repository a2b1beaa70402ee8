"""Commands that open the database themselves: `dev`, `serve`, `worker`, `migrate`. Begin with `processes`."""
