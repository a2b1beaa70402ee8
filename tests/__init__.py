"""The tests.

Where the environment forbids bytecode (images of containers often do), every process that a test starts would compile
all that it imports, which takes longer than most of them live. So it is written after all."""

import os
import sys

if os.environ.pop("PYTHONDONTWRITEBYTECODE", None):
    sys.dont_write_bytecode = False
