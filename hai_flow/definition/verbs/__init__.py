"""The verbs, a module for those of a kind: its keys, what a picture and the pages say of it, its compilation.

To add a verb is to add it to one of these modules: `VERBS` at its end is what the whole language is made from. The node
of the plan may stand beside it.
"""
