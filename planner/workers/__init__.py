"""Virtual workers of unlike devices: their patterns, bounds on their rates, and how they are packed into a cluster."""
