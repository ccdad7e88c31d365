"""The subcommands of `plan`, one file each."""
