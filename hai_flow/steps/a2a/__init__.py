"""Agents of others that speak A2A, as tools: `peer` reads what they say, `runner` sends and follows a task."""
