"""What the project costs, in seconds and memory: ``make bench`` prints it, no test asserts it."""
