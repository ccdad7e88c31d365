"""Independent solvers that the others are checked against, and the even split that people make by hand."""
