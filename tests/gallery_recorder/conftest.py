"""The fixture gallery is a module of the tests, importable by name."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
