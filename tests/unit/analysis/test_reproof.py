"""A claimed bound is proven by a bound as high and refuted by a faster plan."""

import threading

import pytest

from stagecut.planner.analysis.reproof import Claim, ClaimOutcome, _Either

CLAIM = Claim(bound_s=2.0, slack_s=0.01)


@pytest.mark.parametrize(
    ("objective_s", "bound_s", "outcome"),
    [
        (3.0, 2.0, ClaimOutcome.PROVEN),
        (3.0, 1.995, ClaimOutcome.PROVEN),
        (3.0, 1.9, None),
        (3.0, None, None),
        (1.9, None, ClaimOutcome.REFUTED),
        (1.995, None, None),
        (None, 2.5, ClaimOutcome.PROVEN),
        (None, None, None),
    ],
)
def test_claim_is_settled_beyond_its_slack(objective_s, bound_s, outcome):
    assert CLAIM.settled_by(objective_s, bound_s) is outcome


def test_either_event_is_set_by_itself_or_by_the_other():
    other = threading.Event()
    both, alone = _Either(other), _Either(threading.Event())
    assert not both.is_set()
    other.set()
    alone.set()
    assert both.is_set()
    assert alone.is_set()
