"""Makes a release: `make release`. Everything of one lies in `dist` afterwards, and was tried where nothing else is.

`parts` builds the wheel, the sdist and the npm tarball, `bill` lists what they bring along, `trial` installs them for
each Python that is there; `versions` holds the places that say the version against each other.
"""
