"""Dilated mode: actions and messages take the times of a plan."""
