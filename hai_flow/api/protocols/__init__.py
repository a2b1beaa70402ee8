"""The frontend protocols: a post becomes commands, a run's events become frames. Their encoders and decoders are in
`wire`. Begin with `conversation`."""
