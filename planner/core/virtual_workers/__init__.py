"""Plans of virtual workers, what a search for them returns, and the records of their runs."""
