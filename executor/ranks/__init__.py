"""The processes of a run: starting them, finding each other, and reporting what went wrong."""
