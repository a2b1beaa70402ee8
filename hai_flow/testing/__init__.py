"""Tests of workflows, written in YAML (docs/testing.md): a document is read, held against its workflow, and played.

    loading.Loader().load(path) -> Loaded    findings at line and column, or cases
    Loaded.run(case) -> Result               failures at line and column, or none

The real engine, in memory, on a virtual clock, with everything outside it mocked: no database, no network, no waiting.

Nothing is imported here: pytest loads `plugin` wherever HAI Flow is installed, also where there is no test of ours."""
