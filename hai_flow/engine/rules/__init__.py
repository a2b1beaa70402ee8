"""What each command means for a run, one function per command; `decide` finds it by the command's type."""
