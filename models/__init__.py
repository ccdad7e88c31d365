"""Catalogue of models and clusters, described without torch."""

from models.catalogue import build_model, describe_model, model_names
from models.clusters.catalogue import build_cluster, cluster_names, describe_cluster

__all__ = [
    "build_cluster",
    "build_model",
    "cluster_names",
    "describe_cluster",
    "describe_model",
    "model_names",
]
