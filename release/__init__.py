"""Makes a release: `make release`. All of its files lie in `dist` afterwards, and were tried in an empty environment.

`parts` builds the wheel, the sdist and the npm tarball, `bill` lists their dependencies, `trial` installs them for each
Python that is there; `versions` checks that the version is the same in every place that has it.
"""
