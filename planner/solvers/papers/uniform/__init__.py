"""What planners that assume a uniform cluster have in common."""
