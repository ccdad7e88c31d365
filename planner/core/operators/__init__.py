"""Operators of a layer, and how devices may divide them."""
