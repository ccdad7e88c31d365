"""What commands do with plans of virtual workers."""
