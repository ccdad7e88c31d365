"""Choice graphs of the ASPLOS 2025 contest: our answers beside published ones and beside other methods."""
