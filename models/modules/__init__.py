"""The catalogue's layers in torch; imported only to build them, so that describing a model needs no torch."""
