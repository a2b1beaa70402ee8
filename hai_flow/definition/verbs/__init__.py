"""The verbs, a module for those of a kind: its keys, its picture, its lines in the pages, its compilation.

To add a verb is to add it to one of these modules: the whole language is made from the `VERBS` at their ends. The node
of the plan may stand beside it.
"""
