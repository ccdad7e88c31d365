"""Options and arguments, and the values that they become."""
