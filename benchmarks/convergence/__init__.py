"""Time to a target accuracy or loss: real training in the order of the simulated clock."""
