"""The command `plan`: one file per command."""
