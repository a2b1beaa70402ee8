"""What concerns whole runs: starting one, its children, forks, migration to another version, replay. Begin with
`start_run`."""
