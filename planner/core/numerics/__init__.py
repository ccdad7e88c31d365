"""Arrays, compiled loops, rounding."""
