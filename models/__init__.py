"""Catalogue of models and clusters, described without torch."""
