"""The worker: claims runs, keeps their leases alive and performs the attempts of their steps. What follows from a
result is decided in `engine`. Begin with `worker`, then `attempt`."""
