"""What recordings measured: claims, ladders, the performance and release pages."""
