"""Solvers that prove: the MIP over the stage network, dynamic programming and branch and bound."""
