"""Personal values: which parts of a document are marked, and where they may not go. Begin with `pii_flow`."""
