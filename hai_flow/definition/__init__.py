"""A workflow as written, and as run. Pure: no I/O, no clock.

document (YAML with positions) -> outline (the shape) -> compiler (names, expressions) -> plan (frozen, hashed)."""
