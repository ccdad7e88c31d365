"""Sublot sizes by linear and mixed-integer programs, which state the problem a second time."""
