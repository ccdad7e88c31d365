"""Micro-batches of a size of their own in every process: flow-shop lot streaming with variable sublots."""
