"""Notifications of open questions to people and systems: their channels (`channels`), their text (`letters`), and
sending them (`sending`). Nothing here decides anything, and no commit waits for it."""
