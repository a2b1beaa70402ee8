"""Help for authors before anything runs: formatting, templates, the editor's schema, the page for language models.

Text in, text out; nothing here writes a file or asks a server. The commands that do are in `cli`."""
