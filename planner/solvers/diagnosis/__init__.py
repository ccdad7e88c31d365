"""Why no plan fits, and which hardware would make plans faster."""
