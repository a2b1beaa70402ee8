"""Routes for events from outside: webhooks, callbacks, signals, triggers."""
