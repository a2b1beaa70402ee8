"""What every service of the runtime builds on: how it starts and stops, queues by key, single-flight caches, records
of the audit. It knows no other package of the runtime. Begin with `service`."""
