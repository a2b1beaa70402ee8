"""Messages between runs and events from outside: the outbox, triggers, webhooks and callbacks. Each becomes a
command for the committer. Begin with `outbox`."""
