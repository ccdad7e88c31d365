"""Kernels, layers and stages on a GPU."""
