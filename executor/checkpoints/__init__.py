"""How checkpoints are laid out and written."""
