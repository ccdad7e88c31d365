"""Where the figures go: pages, pictures and recorded results."""
