"""AutoPipe-H's device mapping: which stages each host runs."""
