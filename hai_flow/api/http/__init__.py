"""HTTP below the routes: connections, bodies, request policy, errors as problem documents, load shedding. It knows
no run. Begin with `server`, `problems` and `stream` (of events)."""
