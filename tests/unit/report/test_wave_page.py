"""The page about virtual workers: what it draws and tells, and that nothing of it breaks it."""

import json
import math
from dataclasses import replace

import pytest

from stagecut.planner.analysis.wave_prediction import PlayedWaves, play_waves
from stagecut.planner.analysis.wave_what_if import WaveWhatIf
from stagecut.planner.core.result import Status
from stagecut.planner.core.virtual_workers.wave_plan import WavePlan
from stagecut.planner.core.virtual_workers.wave_result import WavePoint, WaveResult
from stagecut.planner.core.waves import Carrier
from stagecut.planner.cost.waves.wave_costs import WaveCosts
from stagecut.planner.io.files.plan_statements import Provenance
from stagecut.planner.report.page.page import page_bytes
from stagecut.planner.report.page.timeline_data import TICKS
from stagecut.planner.report.waves.wave_chart_data import wave_chart_data
from stagecut.planner.report.waves.wave_contents import MOST_LANES, WaveContents
from stagecut.planner.report.waves.wave_page import wave_page
from stagecut.planner.simulator.waves.timeline import simulate_waves
from tests.runs import WAVE_RUN, WAVE_RUN_WITHOUT_ONE
from tests.wave_files import SPREAD, tiny_plan, tiny_problem
from tests.wave_workers import served, virtual_worker, worker_costs

FOUND = WaveResult(status=Status.FEASIBLE, solver="waves-ed", seconds=2.0, samples_per_s=12.0, bound_samples_per_s=16.0)
SECTIONS = ("plan", "timeline", "memory", "links", "limits", "search", "solvers", "run")


def _contents(played, **more):
    provenance = Provenance(versions=(), options=(), seed=0, input_hashes=())
    return WaveContents(played=played, result=FOUND, provenance=provenance, **more)


def _by_hand(workers, own):
    """Workers that exchange their updates over a server; only costs and plan matter."""
    plan = WavePlan(workers=workers, owners=("h0",) * workers[0].stages[-1].stop)
    costs = WaveCosts(plan=plan, workers=own)
    return PlayedWaves(problem=tiny_problem(), plan=plan, costs=costs, timeline=simulate_waves(costs))


@pytest.fixture(scope="module")
def contents():
    return _contents(play_waves(tiny_problem(), tiny_plan(owners=SPREAD)))


def _written(contents):
    return page_bytes(wave_page(contents)).decode()


def _shown(text):
    return [name for name in SECTIONS if f'<section id="{name}"' in text]


def test_a_stage_has_a_row_with_its_minibatches_and_the_ends_of_waves():
    """F 1 s, B 2 s, one minibatch in flight: bars 0-1, 1-3, 3-4, 4-6, 6-7, 7-9 of three waves."""
    workers = tuple(virtual_worker(name, (0, 1), in_flight=1) for name in "ab")
    own = tuple(
        worker_costs(each, forward_s=(1,), backward_s=(2,), exchanges=served(each, ("h0",))) for each in workers
    )
    contents = _contents(_by_hand(workers, own))
    data = wave_chart_data(contents)
    lane = data["gantt"][1]
    assert data["total_s"] == 3 * contents.played.timeline.num_waves
    third = TICKS / data["total_s"]
    assert lane["step"][:4] == pytest.approx([0, third, 2 * third, third], abs=1)
    assert lane["length"][:4] == pytest.approx([third, 2 * third, third, 2 * third], abs=1)
    assert (lane["kind"][:4], lane["first"][:4]) == ([0, 1, 0, 1], [1, 1, 2, 2])
    assert list(lane["ends_s"][:2]) == [3.0, 6.0]
    assert (data["lanes"], data["short_lanes"]) == (["0:0  a/0", "1:0  b/0"], ["0:0", "1:0"])


def test_computing_and_waiting_is_all_that_stages_do(contents):
    series = wave_chart_data(contents)["bars"]["waits"]["series"]
    for shares in zip(*(each["values"] for each in series), strict=True):
        assert sum(shares) == pytest.approx(1)


def test_verdict_and_numbers_are_in_the_page(contents):
    text = _written(contents)
    assert "12 samples/s, within 25 % of optimal" in text
    assert '<dt>upper bound</dt><dd>16</dd><dd class="more">samples/s</dd>' in text
    assert '<dt>global staleness</dt><dd>at most 4</dd><dd class="more">minibatches</dd>' in text


def test_a_plan_without_a_bound_has_a_page(contents):
    text = _written(replace(contents, result=replace(FOUND, bound_samples_per_s=None)))
    assert "12 samples/s, without a proof of how good that is" in text
    assert "<dt>upper bound</dt><dd>-</dd>" in text


def test_sections_appear_only_where_there_is_something(contents):
    assert _shown(_written(contents)) == ["plan", "timeline", "memory", "links", "limits"]
    found = replace(FOUND, history=(WavePoint(seconds=1.0, samples_per_s=None, bound_samples_per_s=20.0),))
    gained = WaveWhatIf(what="one more server", unit="server", planned_samples_per_s=12.0, result=FOUND)
    full = replace(contents, result=found, compared=(found,), run=WAVE_RUN, what_if=(gained,))
    assert _shown(_written(full)) == list(SECTIONS)
    assert "one more server" in _written(full)
    search = wave_chart_data(full)["search"]
    assert list(search["seconds"]) == [1.0, 2.0]
    assert (search["best"], search["bound"]) == ([None, 12.0], [20.0, 16.0])


def test_servers_own_runs_of_layers_and_an_all_reduce_has_none(contents):
    """Of SPREAD, `fast` owns the first two layers, `slow` the others."""
    text = _written(contents)
    assert '<td role="cell" data-name="server">slow</td><td role="cell" data-name="layers">2-5</td>' in text
    summed = _written(_contents(play_waves(tiny_problem(), tiny_plan(owners=()))))
    assert "All-reduces of a wave" in summed
    assert "parameter servers</summary>" not in summed


def test_a_worker_that_a_run_lost_is_told_and_has_no_bar(contents):
    text = _written(replace(contents, run=WAVE_RUN_WITHOUT_ONE))
    assert "worker 1 was dropped after 0 waves: died." in text
    measured = wave_chart_data(replace(contents, run=WAVE_RUN_WITHOUT_ONE))["bars"]["run"]["series"][1]
    assert measured["values"] == [8.0, None]


def test_of_many_workers_those_are_drawn_that_are_unlike_each_other():
    """80 workers of a stage each, the last one slower: it is among the 64, and its kind has a row for memory."""
    workers = tuple(virtual_worker(f"w{number}", (0, 1), in_flight=1) for number in range(80))
    slowest = len(workers) - 1
    own = tuple(
        worker_costs(each, forward_s=(1 + (number == slowest),), backward_s=(2,), exchanges=served(each, ("h0",)))
        for number, each in enumerate(workers)
    )
    contents = _contents(_by_hand(workers, own))
    assert contents.shown_workers == [*range(MOST_LANES - 1), slowest]
    data = wave_chart_data(contents)
    assert len(data["gantt"]) == MOST_LANES
    assert len(contents.first_workers) == 2


def test_a_single_worker_has_stages_without_its_number():
    first = tiny_plan().workers[0]
    plan = WavePlan(workers=(first,), carrier=Carrier.DELAYED_ALL_REDUCE)
    contents = _contents(play_waves(tiny_problem(), plan))
    assert wave_chart_data(contents)["short_lanes"] == ["0", "1"]
    assert "Each device shows the number of its stage." in _written(contents)


def test_what_takes_no_time_is_drawn_as_nothing():
    workers = tuple(virtual_worker(name, (0, 1), in_flight=1) for name in "ab")
    own = tuple(
        worker_costs(each, forward_s=(0,), backward_s=(0,), exchanges=served(each, ("h0",))) for each in workers
    )
    contents = _contents(_by_hand(workers, own), run=replace(WAVE_RUN, predicted_samples_per_s=math.inf))
    json.dumps(wave_chart_data(contents), allow_nan=False)
