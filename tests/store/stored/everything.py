"""
Everything
==========

What blocks can leave.
"""

import sys

import matplotlib.pyplot as plt

print("printed\tby Python")
print("an error", file=sys.stderr)

# %%
# A value as text, below what was printed.

print("before")
{"a": 1}

# %%
# A value as HTML.


class Table:
    def _repr_html_(self):
        return "<table><tr><td>cell</td></tr></table>"


Table()

# %%
# One figure and a file.

plt.figure(figsize=(1, 1)).suptitle("A line")
plt.plot([1, 2])
open("speed.csv", "w").write("a,b\n1,2\n")
print("drawn")

# %%
# Two figures.

plt.figure(figsize=(1, 1))
plt.figure(figsize=(1, 1))

# %%
# An exception.

print("before the exception")
raise ValueError("as expected")

# %%
# What follows it.

print("never")
