"""What waits for people: pendings, the inbox, delegations, notifications, feedback. Begin with `pendings`."""
