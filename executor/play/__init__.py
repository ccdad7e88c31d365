"""Plays the turns of one rank on torch: stages, gradients, optimizer."""
