"""Solvers that prove: every choice tried, variables eliminated, a mixed-integer program."""
