"""The models of a deployment: the catalogue, the presets of providers, and how requests reach them.

`catalogue` resolves a name of `models:`, `endpoints` speaks to the world. `scripted` answers without a model."""
