"""How ranks exchange tensors: as processes or as threads."""
