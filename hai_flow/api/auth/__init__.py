"""Who a caller is: API keys, tokens of issuers, OIDC sessions, frontend tokens and the development mode. What they
may do is in `permissions`. Begin with `authenticate`."""
