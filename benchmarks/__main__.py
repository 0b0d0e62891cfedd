"""Run every benchmark of this folder, or those named: ``python -m benchmarks [NAME…]``.

What follows one name goes to that benchmark: ``python -m benchmarks render 400 --json``.
"""

import importlib
import os
import platform
import sys
from pathlib import Path

known = sorted(path.stem for path in Path(__file__).parent.glob("[a-z]*.py"))
names = [name for name in sys.argv[1:] if name in known]
rest = [word for word in sys.argv[1:] if word not in known]
if rest and len(names) != 1:
    sys.exit(f"no benchmark is called {', '.join(rest)}; there are {', '.join(known)}")
if rest:
    importlib.import_module(f"benchmarks.{names[0]}").main(rest)
    sys.exit()
print(f"{platform.platform()}, Python {platform.python_version()}, {os.cpu_count()} cores")
faults = []
for name in names or known:
    print(flush=True)
    module = importlib.import_module(f"benchmarks.{name}")
    print(module.__doc__.splitlines()[0], flush=True)
    try:
        module.main()
    except SystemExit as fault:  # the others are measured all the same
        faults.append(str(fault))
sys.exit("\n".join(faults) or 0)
