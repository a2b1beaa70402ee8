"""Speaking REST to a server, and asking the person at the terminal. Begin with `rest`."""
