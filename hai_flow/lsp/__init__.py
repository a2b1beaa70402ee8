"""The language server (`hai-flow lsp`): findings, completion, hover, definitions, renaming, formatting and pictures of
workflow files, for editors.

`analysis` has the findings of a text, which are those of `validate`; `cursor_place` says where a cursor is;
`features` answers the questions of editors, pure; `server` speaks the protocol, by pygls."""
