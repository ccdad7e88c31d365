"""The stage network: every plan of one variant is a path through it."""
