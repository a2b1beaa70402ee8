"""Commands for authors of workflows: check, test, scaffold, publish. Begin with `check`."""
