"""Rows of workflows and of their pinned tools. Begin with `workflows`."""
