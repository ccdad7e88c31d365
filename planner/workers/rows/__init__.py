"""Rows that every execution of a virtual worker keeps, and the chain programs over the stages of all patterns."""
