"""Profiles measured on devices, `NAME@DEVICE.json`: `python -m benchmarks.gpu` writes them, the catalogue has them."""
