"""A bound on every variant without any network."""

from collections.abc import Sequence

import numpy as np

from stagecut.planner.core.arrays import Floats
from stagecut.planner.core.problem import Variant
from stagecut.planner.cost.cost_model import CostModel


def fluid_bounds(costs: CostModel, variants: Sequence[Variant]) -> Floats:
    """For each variant, no plan is faster; in seconds, 0 where nothing is known."""
    return np.zeros(len(variants))
