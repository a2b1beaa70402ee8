"""The questions of a run to people, and the consequences of their answers.

Beside the verbs `ask` and `approve`, `gates`, `frontend_calls`, `doubts` and `inquiries` ask; `opening` opens for all.
An answer passes `admission`, which asks `deciders`, and is decided by `deciding`; `stages` is time: reminders,
deadlines, escalations. How the content of an answer is understood is in `engine/pendings/answers`, how votes add up in
`engine/pendings/votes`.
"""
