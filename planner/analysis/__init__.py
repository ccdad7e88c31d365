"""Questions about a plan: what it costs, whether its file is consistent, whether its bound holds, what would help."""
