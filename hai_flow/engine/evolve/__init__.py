"""Folds: each event's effect on the state, one module a subject. A fold never fails and decides nothing. Begin with
`evolve`."""
