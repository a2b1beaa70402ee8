"""Performing one effect out in the world. A runner turns (step, arguments) into an output or a StepError.

Frontend tools, approvals and timers are not here: nobody performs them, the run waits (engine states, not runners).
"""
