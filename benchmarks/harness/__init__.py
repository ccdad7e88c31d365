"""What every benchmark shares: running a search, keeping its answer, comparing answers."""
