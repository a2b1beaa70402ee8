"""The folds of events, by what they are about. `evolve` has the table of all of them."""
