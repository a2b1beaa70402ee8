"""Small things without anything of ours below them: ids, times, addresses, texts.

They do no input or output, and import nothing else of the package."""
