"""What other commands print with --json, read for a report."""
