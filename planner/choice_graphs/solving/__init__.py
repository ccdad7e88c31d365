"""The search on a whole graph: its record, its parts, and the entry."""
