"""Runs as releases have written them, kept for ever: every later release folds them to what they were.

Each file holds the runs of one ABI of the log: the document, the events of each commit as the log stores them, and what
they folded to then, told in REST's words, which do not change with our own. A release with another ABI adds a file with
`tests.corpus.recorder`, and changes none."""
