"""How long the messages of a plan keep the links busy that several flows share."""

from collections import defaultdict

import numpy as np

from stagecut.planner.core.numerics.arrays import Floats
from stagecut.planner.cost.plan_costs import PlanCosts
from stagecut.planner.simulator.chains import Chains
from stagecut.planner.simulator.crossings import crossing_rows, one_way_rows


def load_rows(costs: PlanCosts, chains: Chains, home_s: Floats) -> Floats:
    """The largest row of each link that messages take, shape (links,); `home_s` are the ways home of all stages.

    Notes
    -----
    A link serves the M messages of each flow one after another, none before the first micro-batch alone comes so far.
    Whichever is last, the backward of its micro-batch follows on the stage that receives the gradients nearest to
    stage 0, or on the last stage if there are none. The same holds for the flows over all boundaries from any one on.
    """
    forward_ready_s, backward_ready_s = chains.activations_ready.tolist(), chains.gradients_ready.tolist()
    messages_s = (costs.variant.num_microbatches * costs.transfer_s).tolist()
    after_s = (costs.backward_s + home_s).tolist()
    load_s: dict[str, float] = defaultdict(float)
    ready_s: dict[str, float] = defaultdict(lambda: np.inf)
    follows_s: dict[str, float] = defaultdict(lambda: after_s[-1])
    rows_s: dict[str, float] = defaultdict(float)
    for boundary in reversed(range(costs.num_stages - 1)):
        outward, homeward = set(costs.forward_links[boundary]), set(costs.backward_links[boundary])
        for link in homeward:
            load_s[link] += messages_s[boundary]
            ready_s[link] = min(ready_s[link], backward_ready_s[boundary])
            follows_s[link] = after_s[boundary]
        for link in outward:
            load_s[link] += messages_s[boundary]
            ready_s[link] = min(ready_s[link], forward_ready_s[boundary])
        for link in outward | homeward:
            rows_s[link] = max(rows_s[link], ready_s[link] + load_s[link] + follows_s[link])
    if costs.halves is None:  # half of the last stage's work may be all that follows the last activation
        for link, seconds in (*one_way_rows(costs, chains, home_s), *crossing_rows(costs, chains, home_s)):
            rows_s[link] = max(rows_s[link], seconds)
    return np.array(list(rows_s.values()))
