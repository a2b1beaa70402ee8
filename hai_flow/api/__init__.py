"""HTTP: the REST interface and five frontend protocols over the same runtime. It writes no SQL and decides nothing
about a run. Begin with `app` (what is mounted where), then `requests/access` (what a caller may do)."""
