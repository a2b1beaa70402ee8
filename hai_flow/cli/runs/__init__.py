"""Commands that look at runs of a server and control them."""
