"""What the compiler made of a kernel, and the API reference."""
