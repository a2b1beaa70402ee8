"""Documents of tests as they are written: read at line and column, and held against their workflow.

`reader` reads one, `binding` finds the steps, tools and questions that it names, with `step_names` and `triggering`."""
