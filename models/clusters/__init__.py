"""Clusters whose every figure carries its source."""
