"""Labels of paths through a stage network: lengths, and the hosts opened."""
