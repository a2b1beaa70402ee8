"""People and tenants as a process remembers them: rows cached for a moment, people who were erased, a principal as
JSON. Begin with `people`."""
