"""The process around a command: streams, signals and exit codes."""
