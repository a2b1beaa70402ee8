"""What helps an author before anything runs: formatting, templates, the editor's schema, the page for language models.

Pure, all of it: text in, text out. The commands that read and write files are in `cli`.
"""
