"""A project's galleries and scripts: blocks, keys, needs."""
