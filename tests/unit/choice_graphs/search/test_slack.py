import numpy as np

from stagecut.planner.choice_graphs.search.slack import BLOCK, ENOUGH, least_slack, slack_of, use


def test_least_values_and_changes_over_runs_agree_with_a_plain_array() -> None:
    random = np.random.default_rng(0)
    for length in (1, BLOCK - 1, BLOCK, 3 * BLOCK + 7):
        plain = random.integers(0, 1000, length)
        slack = slack_of(plain)
        for _ in range(50):
            begin, end = np.sort(random.integers(0, length + 1, 2)).tolist()
            amount = int(random.integers(-100, 100))
            plain = plain - amount * ((np.arange(length) >= begin) & (np.arange(length) < end))
            use(slack, begin, end, amount)
            begin, end = np.sort(random.integers(0, length + 1, 2)).tolist()
            assert least_slack(slack, begin, end) == min(plain[begin:end].tolist(), default=ENOUGH)


def test_no_moments_leave_enough() -> None:
    slack = slack_of(np.zeros(0, dtype=np.int64))
    assert least_slack(slack, 0, 0) == ENOUGH
