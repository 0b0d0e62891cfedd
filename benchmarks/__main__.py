"""Run the benchmarks of this folder, or those named: ``python -m benchmarks [NAME…]``.

Words that are no names go to the benchmark: ``python -m benchmarks render 400 --json``.
"""

import importlib
import os
import platform
import sys
from pathlib import Path

known = sorted(path.stem for path in Path(__file__).parent.glob("[a-z]*.py"))
names = [word for word in sys.argv[1:] if word in known]
rest = [word for word in sys.argv[1:] if word not in known]
if rest and len(names) != 1:
    sys.exit(f"no benchmark is called {', '.join(rest)}; there are {', '.join(known)}")
if rest:
    importlib.import_module(f"benchmarks.{names[0]}").main(rest)
    sys.exit()
print(f"{platform.platform()}, Python {platform.python_version()}, {os.cpu_count()} cores")
for name in names or known:
    module = importlib.import_module(f"benchmarks.{name}")
    print(f"\n{module.__doc__.splitlines()[0]}", flush=True)
    module.main()
