"""Files of runs: their content in a file system and their rows in the database. Which file a run may read is decided
by its callers. Begin with `files`."""
