"""Expressions in CEL and templates: parsed, typed, evaluated within bounds. Begin with `expressions`."""
