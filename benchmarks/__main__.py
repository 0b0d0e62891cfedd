"""Run every benchmark of this folder, or those named: ``python -m benchmarks [NAME…]``."""

import importlib
import os
import platform
import sys
from pathlib import Path

names = sorted(path.stem for path in Path(__file__).parent.glob("[a-z]*.py"))
if unknown := set(sys.argv[1:]) - set(names):
    sys.exit(f"no benchmark is called {', '.join(unknown)}; there are {', '.join(names)}")
print(f"{platform.platform()}, Python {platform.python_version()}, {os.cpu_count()} cores")
for name in sys.argv[1:] or names:
    print(flush=True)
    module = importlib.import_module(f"benchmarks.{name}")
    print(module.__doc__.splitlines()[0], flush=True)
    module.main()
