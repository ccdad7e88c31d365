"""The names that cluster files may use."""

from stagecut.models.clusters.device_types import DEVICE_TYPES
from stagecut.models.clusters.links import LINKS
from stagecut.planner.core.catalogue import Catalogue

CATALOGUE = Catalogue(device_types=DEVICE_TYPES, links=LINKS)
