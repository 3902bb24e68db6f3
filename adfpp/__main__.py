"""``python -m adfpp`` is the command ``adfpp``."""

import sys

from adfpp.cli import main

if __name__ == "__main__":
    sys.exit(main())
