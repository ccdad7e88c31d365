"""One file per paper: its planner in our simulator, beside the figures that the paper states."""
