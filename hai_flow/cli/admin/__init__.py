"""Commands for operators. Those that prove something open the database themselves; the others speak REST."""
