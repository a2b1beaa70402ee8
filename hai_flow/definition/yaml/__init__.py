"""YAML as text: read with positions, described key by key, corrected, included. Begin with `reader`, then
`document`."""
