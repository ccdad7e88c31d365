"""Plans with equal and unequal micro-batches, run on this machine."""
