"""Tools in Python: found in the project's modules, and called with arguments that fit their signatures.

`runner` performs a call, in one of `threads` where the function is not asynchronous. `project` loads modules,
`toolbox` finds the functions in them, `signatures` reads their types, `trace` shortens their tracebacks."""
