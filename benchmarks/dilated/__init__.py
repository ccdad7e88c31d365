"""Plans for many devices played on this machine, compared with the simulator."""
