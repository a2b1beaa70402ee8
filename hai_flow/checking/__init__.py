"""Workflow files held against each other and against the Python modules of their tools, without a server.

`validate`, `run`, `test` and the language server ask `workflows`, so their findings are the same. `modules` finds
Python modules and reads their source; `imported` imports one in a process of its own, where the source does not show
its functions."""
