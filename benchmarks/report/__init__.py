"""Output: pages, pictures and recorded results."""
