"""What operators ask of an installation: readiness, checks of runs against their logs, seals of the audit, the guard
against a database that was rolled back. It repairs nothing unasked. Begin with `doctor` and `verify`."""
