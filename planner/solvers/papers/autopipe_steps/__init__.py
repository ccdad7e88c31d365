"""The two steps of AutoPipe and AutoPipe-H: balanced partition, then device mapping."""
