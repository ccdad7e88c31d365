"""The command line `plan`: a module of `commands/` per command, and in `options/` the options they share."""
