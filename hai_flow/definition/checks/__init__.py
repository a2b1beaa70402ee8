"""Doubts about a document that compiles, and facts of a plan that several checks ask for. Begin with `lint`."""
