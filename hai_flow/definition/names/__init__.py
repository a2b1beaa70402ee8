"""Names and types that expressions of a document may use, and the texts that they stand in: scope, holes, durations,
zones, wording of findings. It compiles nothing. Begin with `known_names`."""
