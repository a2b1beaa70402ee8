"""What operators count and remove: metrics, retention, restores, the history of the database itself. Begin with
`status`."""
