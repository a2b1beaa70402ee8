"""What follows from the end of a step: its parent goes on, fails, is compensated or is cancelled. Rules return
consequences instead of calling each other. Begin with `consequences`, then `loop`."""
