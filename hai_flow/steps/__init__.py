"""Performing one effect out in the world. A runner turns (step, arguments) into an output or a StepError.

Frontend tools, approvals and timers are not here: no process performs them, the run waits. They are states of the
engine, not runners."""
