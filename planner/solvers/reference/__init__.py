"""Independent solvers that the others are checked against."""
