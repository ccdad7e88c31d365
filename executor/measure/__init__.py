"""Measure layers, links and devices."""
