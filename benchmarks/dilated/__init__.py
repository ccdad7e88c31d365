"""Plans of many devices played on this machine, against the simulator."""
