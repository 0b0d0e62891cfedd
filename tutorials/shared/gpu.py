"""What a plan has to know about the GPU; without one, the numbers of an H200 stand in."""

import torch
from shared.setup import DEVICE, ON_GPU


def gpu_facts():
    """Return (processors, bytes of shared memory a program can get, has tensor descriptors)."""
    if not ON_GPU:
        return 132, 232448, True  # as an H200; the interpreter can do it all
    properties = torch.get_device_module(DEVICE).get_device_properties(DEVICE)
    processors = getattr(properties, "multi_processor_count", 64)
    shared_bytes = getattr(properties, "shared_memory_per_block_optin", 65536)
    nvidia = DEVICE.type == "cuda" and not torch.version.hip
    return processors, shared_bytes, nvidia and properties.major >= 9


SMS, SHARED_BYTES, HAS_DESCRIPTORS = gpu_facts()
