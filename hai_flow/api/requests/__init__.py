"""What every route uses: access of a caller to their tenant, dependencies, schemas and views of answers, pages.
Begin with `access`."""
