"""Solvers: each takes a problem and returns a result; the simulator scores them all."""
