"""`plan run`: its options and checks, the training loop of a rank, and the record of what was measured."""
