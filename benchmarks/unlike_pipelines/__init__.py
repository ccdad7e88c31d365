"""What synchronous pipelines of different shape could save over alike ones: a bound from below, and plans by hand."""
