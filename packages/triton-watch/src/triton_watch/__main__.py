"""``python -m triton_watch SCRIPT [ARGUMENTS]``."""

import sys

from triton_watch.command import main

if __name__ == "__main__":
    sys.exit(main())
