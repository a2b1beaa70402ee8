"""HTTP. Translates requests into commands and committed events into responses; decides nothing."""
