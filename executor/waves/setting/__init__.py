"""What all parts of a training through waves agree on: layout, schemes, orders, data, reports."""
