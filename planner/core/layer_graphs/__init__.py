"""Layers as small graphs of operators."""
