"""The version, also in a checkout that is not installed; a test compares it with pyproject.toml."""

VERSION = "0.3.0"
