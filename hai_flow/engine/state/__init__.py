"""A run's state as records, and what is computed of it alone: sizes, limits, ids, jobs. It decides nothing. Begin
with `state`."""
