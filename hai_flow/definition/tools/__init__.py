"""Where tools come from: OpenAPI documents, MCP servers and how to authenticate to them. Begin with `openapi`."""
