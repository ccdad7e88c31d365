"""Stage networks in which processes have sublot sizes of their own."""
