"""Virtual workers that train through waves, played event by event."""
