"""Writers of plans for training frameworks, one per framework."""
