"""Find out-of-bounds accesses, races and uninitialized memory in Triton kernels, without a GPU.

triton-watch my_script.py          # any script, its own arguments behind it
pytest --triton-watch              # each test of a project

with triton_watch.watch() as report:      # in Python, with TRITON_INTERPRET=1
my_function(x)
print(report)
"""

__all__ = ["FaultError", "Report", "watch"]


def __getattr__(name):
    """Import what programs call when it is asked for: the command itself needs no PyTorch."""
    if name not in __all__:
        raise AttributeError(f"module 'triton_watch' has no attribute {name!r}")
    from triton_watch import api

    return getattr(api, name)
