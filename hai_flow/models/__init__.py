"""Models: the catalogue of them, the questions to them, and their answers. All but `endpoints` and `connections` is
pure. Begin with `vocabulary`: the request to a provider and its answer, the contract of plug-ins."""
