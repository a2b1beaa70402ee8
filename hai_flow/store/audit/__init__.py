"""The audit log and its chain of seals. Rows are only appended. Begin with `audit`."""
