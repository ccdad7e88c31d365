"""Planners of papers, one file each."""
