"""``python -m exercises [EXERCISE FILE]``."""

import sys

from exercises.command import main

if __name__ == "__main__":
    sys.exit(main())
