"""Costs and rules of virtual workers."""
