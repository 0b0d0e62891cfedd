"""The engine among others: sphinx-gallery's own tests, and the releases that are supported."""
