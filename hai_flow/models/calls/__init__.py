"""The calls in a model's answer, put together from pieces: ids, names, and arguments that may come in any order.

`calls` collects them, `arguments` tells when JSON text is whole, `text_pieces` finds the text in a value."""
