"""The folds of events, by their subject. `evolve` has the table of all of them."""
