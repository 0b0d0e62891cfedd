"""The recordings that pages show first, and the probe that says what they were made with."""

#: The devices whose recordings pages show, in this order, and `make check` requires one of.
REFERENCE_DEVICES = ("nvidia-h100-80gb-hbm3",)

#: The same with the release of Triton.
REFERENCES = tuple(f"{device}/triton-3.9.0" for device in REFERENCE_DEVICES)

#: The name of the probe ``software`` in recordings.
SOFTWARE = "triton_site.probes.software"
