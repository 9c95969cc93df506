"""``python -m agymc`` is the command ``agymc``."""

import sys

from agymc.cli import main

if __name__ == "__main__":
    sys.exit(main())
