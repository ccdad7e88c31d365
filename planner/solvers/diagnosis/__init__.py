"""Why no plan fits, and what would bring more."""
