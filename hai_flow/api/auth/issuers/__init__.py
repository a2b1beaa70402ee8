"""Tokens of other issuers: JWT, their key sets, and sign-in by OIDC. Begin with `jwt`."""
