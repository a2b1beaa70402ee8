"""Handlers of commands: each checks its command against the state and decides the first events. What follows is in
`completion`. Begin with `control`."""
