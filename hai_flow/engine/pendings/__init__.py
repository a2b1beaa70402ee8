"""The questions of a run to people, and the consequences of their answers. `open` opens them, `answers` reads the
content of an answer, `votes` adds votes up, `decide` closes a question, and `deadlines` are reminders and escalations.
"""
