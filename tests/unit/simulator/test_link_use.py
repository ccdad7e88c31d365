"""How long links between virtual workers are in use, counted by hand."""

import pytest

from stagecut.planner.core.virtual_workers.wave_plan import WavePlan
from stagecut.planner.core.waves import Carrier
from stagecut.planner.cost.waves.wave_costs import WaveCosts
from stagecut.planner.simulator.waves.link_use import links_per_wave
from stagecut.planner.simulator.waves.steady import steady_state
from tests.wave_workers import all_reduces, served, virtual_worker, worker_costs


def _in_use(costs):
    return {use.name: use.busy_s for use in links_per_wave(costs, steady_state(costs))}


def test_each_minibatch_sends_activations_one_way_and_gradients_back():
    """Two messages of 0.25 s each way in a wave of two minibatches; the way out is shared."""
    worker = virtual_worker("w", (0, 1, 2), in_flight=2)
    costs = worker_costs(
        worker,
        forward_s=(1, 1),
        backward_s=(1, 1),
        transfer_s=0.25,
        forward_links=(("out", "in"),),
        backward_links=((),),
    )
    plan = WavePlan(workers=(worker,), carrier=Carrier.DELAYED_ALL_REDUCE)
    found = _in_use(WaveCosts(plan=plan, workers=(costs,)))
    assert found == pytest.approx({"out": 0.5, "in": 0.5, "worker 0, stage 1: gradients": 0.5})


def test_updates_are_pushed_and_pulled_once_a_wave():
    """Pushes take 0.5 s, pulls 0.25 s, each on a path of its own."""
    workers = tuple(virtual_worker(name, (0, 1), in_flight=1) for name in "ab")
    own = tuple(
        worker_costs(each, forward_s=(1,), backward_s=(1,), exchanges=served(each, ("h0",), push_s=0.5, pull_s=0.25))
        for each in workers
    )
    found = _in_use(WaveCosts(plan=WavePlan(workers=workers, owners=("h0",)), workers=own))
    pushes = {f"worker {number}, stage 0: push": 0.5 for number in (0, 1)}
    assert found == pytest.approx(pushes | {f"worker {number}, stage 0: pull": 0.25 for number in (0, 1)})


def test_an_all_reduce_occupies_its_links_once_a_wave_the_busiest_first():
    workers = tuple(virtual_worker(name, (0, 1, 2), in_flight=1) for name in "ab")
    own = tuple(worker_costs(each, forward_s=(1, 1), backward_s=(1, 1)) for each in workers)
    plan = WavePlan(workers=workers, carrier=Carrier.DELAYED_ALL_REDUCE)
    reduces = all_reduces(plan, (0.25, 0.5), (("x", "y"), ("y",)))
    costs = WaveCosts(plan=plan, workers=own, all_reduces=reduces)
    found = links_per_wave(costs, steady_state(costs))
    assert [(use.name, pytest.approx(use.busy_s)) for use in found] == [("y", 0.75), ("x", 0.25)]
