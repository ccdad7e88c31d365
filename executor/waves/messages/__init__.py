"""What crosses the boundaries of stages."""
