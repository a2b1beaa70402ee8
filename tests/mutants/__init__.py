"""Mutation testing: the project with one bug put in must fail a test. `python3 -m tests.mutants`, or `make mutants`.

mutant       what a mutant is, and how it is put into a file
engine, store, runtime   bugs made by hand, each a sentence: what could go wrong in these rooms
operators    bugs made by rule, in functions that are arithmetic: a condition is ignored, a statement is left out
running      a copy of the project, one mutant at a time in it, the tests that should notice
survivors.toml   the mutants that no test can or need notice, and why"""
