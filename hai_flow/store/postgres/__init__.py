"""PostgreSQL itself: pools, roles, row security, errors by SQLSTATE, migrations. It knows no table's meaning. Begin
with `database`."""
