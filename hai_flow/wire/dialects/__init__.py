"""The dialects: each shows frontends a run's log in its own words.

`dialect` is what all have in common, `turns` the fold that calls an encoder for each event, `transcript` and
`questions` the parts that encoders share. A new dialect begins with `hai`, the plainest of them."""
