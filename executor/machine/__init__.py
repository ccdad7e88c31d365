"""The machine at hand: its devices, its free memory, and how much other programs use it."""
