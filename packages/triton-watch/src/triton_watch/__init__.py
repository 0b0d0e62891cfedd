"""Find out-of-bounds accesses, races and uninitialized memory in Triton kernels, without a GPU.

triton-watch my_script.py          # any script, its own arguments behind it
pytest --triton-watch              # each test of a project

with triton_watch.watch() as report:      # in Python, with TRITON_INTERPRET=1
my_function(x)
print(report)
"""

from triton_watch.api import Report, watch
from triton_watch.places import FaultError

__all__ = ["FaultError", "Report", "watch"]
