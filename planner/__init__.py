"""Finds plans, proves how good they are, and plays them in a simulator."""
