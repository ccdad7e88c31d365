"""Benchmarks: quality of plans and speed of the parts, each driver a module to run."""
