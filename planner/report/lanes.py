"""Lanes of device groups in pictures."""

from collections.abc import Sequence

import numpy as np

from stagecut.planner.core.visible import visible
from stagecut.planner.simulator.timeline import Timeline


def lane_labels(timeline: Timeline, stage_labels: Sequence[str] = ()) -> list[str]:
    """One label per device group: those of its stages, `stage 0` or `stages 0, 4` by default."""
    by_lane = [np.flatnonzero(timeline.device == device).tolist() for device in range(timeline.num_devices)]
    if stage_labels:
        return [" + ".join(visible(stage_labels[stage]) for stage in stages) for stages in by_lane]
    return [f"stage{'s' * (len(stages) > 1)} {', '.join(map(str, stages))}" for stages in by_lane]
