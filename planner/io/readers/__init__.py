"""Profiles that other planners' files hold: one reader for each format."""
