"""SQL, and nothing else: every statement of the server, by subject. It decides nothing and knows no run's state.
Begin with `commit` (how a log grows) and `postgres` (connections and roles)."""
