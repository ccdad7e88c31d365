"""The catalogue's layers in torch; imported where they are built, so that describing a model needs no torch."""
