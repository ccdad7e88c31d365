"""Catalogue of models and clusters, described without torch; layers are built with it."""

from stagecut.models.catalogue import build_model, build_modules, describe_model, model_names
from stagecut.models.cluster_catalogue import build_cluster, cluster_names, describe_cluster
from stagecut.models.measured_profiles import is_measured, measured_names, measured_path

__all__ = [
    "build_cluster",
    "build_model",
    "build_modules",
    "cluster_names",
    "describe_cluster",
    "describe_model",
    "is_measured",
    "measured_names",
    "measured_path",
    "model_names",
]
