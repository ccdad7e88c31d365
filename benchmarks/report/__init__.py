"""Output: pages and recorded results."""
