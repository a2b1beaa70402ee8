"""JSON Schema in documents: compiled within a bound of work, with defaults, references and paths. Begin with
`schemas`."""
