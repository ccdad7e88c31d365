"""The processes of `plan run`: start, ranks, faults, records."""
