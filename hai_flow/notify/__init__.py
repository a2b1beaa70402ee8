"""Telling people and systems of questions that wait: which channel (`channels`), what it says (`letters`), how it gets
there (`sending`). Nothing here decides anything, and no commit waits for it."""
