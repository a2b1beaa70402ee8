"""YAML as text: read with positions, described key by key, corrected, included. Begin with `document`, which parses,
then `mapping_reader`."""
