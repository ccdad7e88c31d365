"""What each rank computes, sends and receives, in which order; without torch."""
