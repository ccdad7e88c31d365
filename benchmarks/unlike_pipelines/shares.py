"""How many samples each group gets."""

from collections import Counter
from collections.abc import Mapping
from itertools import product

from benchmarks.unlike_pipelines.groupings import Group, Grouping

Shares = Mapping[Group, int]
"""Samples of every group with these devices."""
WINDOW = 0.06
"""How far shares may be from the parts by rate."""


def near_shares(grouping: Grouping, rates: Mapping[Group, float], num_samples: int) -> list[Shares]:
    """Whole shares that add up, the same for equal groups, each within WINDOW of its part by rate.

    The rarest kind of group has what the others leave.
    """
    numbers = Counter(grouping)
    *others, rarest = sorted(numbers, key=lambda group: -numbers[group])
    per_rate = num_samples / sum(number * rates[group] for group, number in numbers.items())
    found: list[Shares] = []
    for chosen in product(*(_window(rates[group] * per_rate) for group in others)):
        shares = dict(zip(others, chosen, strict=True))
        left, rest = divmod(num_samples - sum(numbers[group] * n for group, n in shares.items()), numbers[rarest])
        if rest == 0 and left in _window(rates[rarest] * per_rate, times=2):
            found.append({**shares, rarest: left})
    return found


def _window(share: float, *, times: int = 1) -> range:
    width = max(1.0, times * WINDOW * share)
    return range(max(1, round(share - width)), round(share + width) + 1)
