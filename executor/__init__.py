"""Run a plan on torch."""
