"""What is said to people: errors, what is wrong with a value, names they may have meant."""
