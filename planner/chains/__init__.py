"""Graphs of layers linearised into chains, and chains made coarser."""
