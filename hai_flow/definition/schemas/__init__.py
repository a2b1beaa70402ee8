"""JSON Schema in documents: compiled within a bound of work, with defaults and references. Begin with `schemas`."""
