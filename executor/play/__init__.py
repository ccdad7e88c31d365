"""Plays action lists: what every rank computes, receives and sends."""
