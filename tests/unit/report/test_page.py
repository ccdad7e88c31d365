"""The page about a plan: the numbers it draws, its tables, and that it is one file."""

import base64
import gzip
import json
import re
from dataclasses import replace

import pytest

from stagecut.planner.core.messages.errors import BadInputError
from stagecut.planner.core.result import HistoryPoint, Result, Status
from stagecut.planner.io.files.plan_statements import Provenance
from stagecut.planner.report.page import page
from stagecut.planner.report.page.chart_data import chart_data
from stagecut.planner.report.page.contents import Contents
from stagecut.planner.report.page.html_text import html_table
from stagecut.planner.report.page.page import page_bytes
from stagecut.planner.report.page.plan_page import plan_page
from stagecut.planner.report.page.stage_colours import group_colours
from stagecut.planner.report.page.timeline_data import TICKS
from stagecut.planner.report.text_table import text_table
from stagecut.planner.simulator.binding import what_binds
from tests.runs import RUN


@pytest.fixture
def contents(played):
    return Contents(
        played=played,
        result=Result(status=Status.FEASIBLE, solver="dp", seconds=2.0, objective_s=16.0, bound_s=12.0),
        binding=what_binds(played.costs, played.timeline),
        provenance=Provenance(versions=(), options=(), seed=0, input_hashes=()),
    )


def test_bars_of_a_lane_are_those_of_the_iteration_in_ticks(contents):
    """Stage 0: F0 0-1, F1 1-2, B0 8-10, B1 14-16 of 16 s; the last bar ends at the last tick."""
    lane = chart_data(contents)["gantt"][0]
    assert lane["step"] == [0, TICKS // 16, 7 * TICKS // 16, 6 * TICKS // 16]
    assert lane["length"] == [TICKS // 16, TICKS // 16, TICKS // 8, TICKS // 8]
    assert lane["kind"] == [0, 0, 1, 1]
    assert lane["first"] == [0, 2, 0, 2]
    assert sum(lane["step"]) + lane["length"][-1] == TICKS


def test_memory_curve_keeps_every_level(contents):
    data = chart_data(contents)
    curve, original = data["memory"][1], contents.played.timeline.memory[1]
    assert [curve["levels"][level] for level in curve["level"]] == original.memory_bytes.tolist()
    assert sum(curve["step"]) == round(13.5 / 16 * TICKS)  # the last backward of stage 1 ends at 13.5 s
    assert data["limits_bytes"] == [8e9, 8e9]


def test_page_holds_its_data_and_names_no_address_to_fetch(contents):
    text = page_bytes(plan_page(contents)).decode()
    packed = re.search(r'id="data">"([^"]+)"', text)[1]
    assert json.loads(gzip.decompress(base64.b64decode(packed))) == json.loads(json.dumps(chart_data(contents)))
    own = "".join(re.split(r"<script>.*?</script>", text, flags=re.DOTALL))
    assert not re.search(r'(?:src|href)="(?!data:|#)', own)
    assert "default-src 'none'" in text


def test_same_contents_give_the_same_bytes(contents):
    assert page_bytes(plan_page(contents)) == page_bytes(plan_page(contents))


def test_verdict_and_numbers_are_in_the_page(contents):
    text = page_bytes(plan_page(replace(contents, even_split_s=32.0))).decode()
    assert "16 s per iteration, within 25 % of optimal; 2.00x faster than an even split" in text
    for name, value in (("lower bound", "12 s"), ("bubbles", "43.75 %"), ("even split", "32 s")):
        assert f"<dt>{name}</dt><dd>{value}</dd>" in text


def test_sections_appear_only_where_there_is_something(contents):
    plain = page_bytes(plan_page(contents)).decode()
    assert all(f'id="{name}"' not in plain for name in ("search", "solvers", "run"))
    found = replace(contents.result, history=(HistoryPoint(seconds=1.0, objective_s=20.0, bound_s=None),))
    full = page_bytes(plan_page(replace(contents, result=found, compared=(found,), run=RUN))).decode()
    assert all(f'<section id="{name}"' in full for name in ("search", "solvers", "run"))


def test_history_goes_on_to_the_end_of_the_search(contents):
    """One step at 1 s, then the final values at 2 s."""
    found = replace(contents.result, history=(HistoryPoint(seconds=1.0, objective_s=20.0, bound_s=None),))
    search = chart_data(replace(contents, result=found))["search"]
    assert {name: list(search[name]) for name in ("seconds", "best", "bound")} == {
        "seconds": [1.0, 2.0],
        "best": [20.0, 16.0],
        "bound": [None, 12.0],
    }


def test_names_from_files_are_not_markup():
    html = html_table(text_table([("<b>&\u202e",)], "<i>"), caption="<u>")
    assert "<b>" not in html
    assert "&lt;b&gt;&amp;\\u202e" in html
    assert 'data-name="&lt;i&gt;"' in html


def test_page_that_would_be_too_large_is_refused(contents, monkeypatch):
    monkeypatch.setattr(page, "MOST_BYTES", 1000)
    with pytest.raises(BadInputError, match="plan simulate --trace"):
        page_bytes(plan_page(contents))


def test_colours_go_from_dark_to_light_with_readable_ink():
    assert group_colours(2) == [("#440154", "#FFF"), ("#FDE725", "#000")]
    assert len(set(group_colours(64))) == 64
