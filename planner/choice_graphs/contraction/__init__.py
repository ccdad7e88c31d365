"""Nodes whose options determine each other made one: the same problem, and often a hundredth of its nodes."""
