"""What a caller may do and see: rights, visibility, redaction, rate limits, the expiry of credentials. Begin with
`principals`."""
