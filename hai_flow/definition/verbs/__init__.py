"""The verbs, a module for those of a kind: its keys, its picture, its lines in the pages, its compilation.

To add a verb, append its `VerbRules` to `VERBS` at the end of one of these modules, or write a module and name it in
`definition/yaml/language`, whose order is that of the pages. Its node stands in `definition/plan`, and
`definition/personal/pii_flow` says which of its values become its output."""
