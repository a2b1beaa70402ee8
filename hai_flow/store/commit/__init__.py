"""The statement that commits the decisions of many runs at once, and the rows that it writes. Nothing else appends
to a log. Begin with `commits`, then `commit_sql`."""
