"""One file per paper: its planner under our simulator, beside the figures stated in the paper."""
