"""The imperative shell: loads runs, commits what the engine decides, and performs steps. It holds no policy of its
own: what a command means is decided in `engine`. Begin with `runtime` (everything that a process starts), then
`commit`."""
