"""The tests.

Where the environment forbids bytecode (images of containers often do), every process that a test starts would compile
all that it imports, which takes longer than most of them live. So it is written after all, where it is in nobody's way.
"""

import os
import sys

if os.environ.pop("PYTHONDONTWRITEBYTECODE", None):
    sys.dont_write_bytecode = False
    sys.pycache_prefix = os.environ["PYTHONPYCACHEPREFIX"] = os.path.join(sys.prefix, "bytecode")
