"""Exact event times of a plan, and lower bounds on them."""
