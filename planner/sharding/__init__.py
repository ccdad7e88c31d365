"""How the operators of a layer are divided over a mesh of devices: strategies, conversions, and what they cost."""
