"""The outbox, signals, triggers, queued messages, slots of concurrency, and hints by NOTIFY. Begin with `outbox`."""
