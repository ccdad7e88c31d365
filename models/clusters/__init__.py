"""Clusters, each figure with its source."""
