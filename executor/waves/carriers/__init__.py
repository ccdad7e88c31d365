"""Parameter servers and delayed all-reduces, which carry updates between virtual workers."""
