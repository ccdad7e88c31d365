"""Measured profiles, `NAME@DEVICE.json`, written by `python -m benchmarks.gpu` and listed in the catalogue."""
