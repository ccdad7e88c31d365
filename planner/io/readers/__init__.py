"""Readers of other planners' profiles, one per format."""
