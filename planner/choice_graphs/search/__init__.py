"""Good choices for large graphs: groups of nodes chosen anew together, never above the limit."""
