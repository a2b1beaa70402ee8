"""Workflows to begin with (`hai-flow new`), each with its tests: valid, tested, and runnable as they are."""
