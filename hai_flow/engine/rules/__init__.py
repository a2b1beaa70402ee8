"""The rules of the commands, one function per command; `decide` finds it by the command's type."""
