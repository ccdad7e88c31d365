"""Dilated mode: actions and messages held to the times of a plan."""
