"""What every script begins with: the device, or the interpreter; letters that a phone shows."""

import os
import warnings

import matplotlib.pyplot as plt
import torch

if not torch.accelerator.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # before Triton is imported
# Triton 3.9 asks whether products and sums may be fused; they always were.
os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")

ON_GPU = os.environ.get("TRITON_INTERPRET", "0") != "1"
DEVICE = torch.device("cpu")
if ON_GPU:  # the current GPU, with its number: kernels run there, wherever the tensors are
    accelerator = torch.accelerator.current_accelerator()
    DEVICE = torch.device(accelerator.type, torch.accelerator.current_device_index())
warnings.filterwarnings("ignore", "invalid value", RuntimeWarning)  # the interpreter's inf - inf
plt.rcParams.update({"font.size": 14, "axes.titlesize": 14, "figure.titlesize": 14})
