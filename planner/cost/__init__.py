"""Times and bytes of layers, stages, transfers and collectives."""
