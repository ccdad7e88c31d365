"""A colour for each device group."""

import numpy as np

ANCHORS = ("#440154", "#3B528B", "#21908C", "#5DC863", "#FDE725")
"""Viridis (bids.github.io/colormap), which gets lighter evenly and reads in order under every kind of colour vision."""
BRIGHT = 0.5
"""Above this lightness, black is easier to read than white."""
WEIGHTS = (0.299, 0.587, 0.114)
"""Of red, green and blue in the lightness (ITU-R BT.601)."""


def group_colours(num_groups: int) -> list[tuple[str, str]]:
    """Background and text colour of each device group, from dark to light along the pipeline."""
    anchors = np.array([[int(anchor[at : at + 2], 16) for at in (1, 3, 5)] for anchor in ANCHORS])
    places = np.linspace(0, len(ANCHORS) - 1, num_groups) if num_groups > 1 else np.array([1.0])
    mixed = [np.interp(places, range(len(ANCHORS)), channel) for channel in anchors.T]
    rows = np.rint(np.stack(mixed, axis=1)).astype(int)
    is_bright = rows @ np.array(WEIGHTS) / 255 > BRIGHT
    return [
        ("#{:02X}{:02X}{:02X}".format(*row), "#000" if bright else "#FFF")
        for row, bright in zip(rows.tolist(), is_bright.tolist(), strict=True)
    ]
