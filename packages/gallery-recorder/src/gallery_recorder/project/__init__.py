"""A project's galleries, scripts and settings."""
