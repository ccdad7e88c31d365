"""The interleaved schedule: its costs, relaxation and proof."""
