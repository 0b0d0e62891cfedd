"""Triton decides when it is imported whether it interprets kernels."""

import os

os.environ["TRITON_INTERPRET"] = "1"
os.environ["OMP_NUM_THREADS"] = "1"  # blocks are small: more threads only wait
