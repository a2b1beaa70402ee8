"""Commands for people who decide."""
