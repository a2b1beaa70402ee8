"""One run as a state machine. Pure: time, ids and chance are arguments; nothing here waits, logs or asks.

commands (asked) -> decide -> events (happened) -> evolve -> state. `decide` never changes anything, `evolve` never
chooses anything."""
