"""Reports on plans of virtual workers, and on their runs."""
