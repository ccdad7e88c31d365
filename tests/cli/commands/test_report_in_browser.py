"""The page of `plan report` in a real browser: complete, silent, offline, and usable by keyboard."""

import json
import shutil
from dataclasses import replace

import pytest

from stagecut.planner.io.documents.canonical import sha256_of
from stagecut.planner.io.files.plan_file import read_plan_file, to_tree
from stagecut.planner.io.files.run_history import to_tree as run_tree
from stagecut.planner.io.files.wave_run_file import to_tree as wave_run_tree
from tests.runs import RUN, WAVE_RUN

sync_api = pytest.importorskip("playwright.sync_api", reason="needs playwright")
CHROMIUM = shutil.which("chromium")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium (the Debian package)")

CUT = """() => {
  const width = document.documentElement.clientWidth, page = [...document.querySelectorAll("body *")];
  const seen = page.filter((element) => !element.closest(".hidden, .scroll, thead") && element.getClientRects().length);
  const cut = seen.filter((element) => element.getBoundingClientRect().right > width + 1);
  return cut.map((element) => element.outerHTML);
}"""
"""What reaches over the right edge."""
OVERLAPS = """() => {
  const boxes = (selector) => [...document.querySelectorAll(selector)].filter((each) => each.getClientRects().length);
  const meet = (a, b) => a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 1 && b.top < a.bottom - 1;
  const found = [];
  const parents = "main, header, section, .tools, .numbers, .cluster, .hosts, .island, nav";
  for (const parent of [document.body, ...boxes(parents)]) {
    const inside = [...parent.children].filter((each) => each.getClientRects().length && !each.matches(".hidden"));
    inside.forEach((one, index) => inside.slice(index + 1).forEach((other) => {
      if (meet(one.getBoundingClientRect(), other.getBoundingClientRect())) found.push(one.outerHTML + other.outerHTML);
    }));
  }
  return found;
}"""
"""Pairs of neighbours that lie on each other."""


@pytest.fixture(scope="module")
def browser():
    with sync_api.sync_playwright() as driver:
        launched = driver.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
        )
        yield launched
        launched.close()


@pytest.fixture(scope="module")
def written(plan, plan_json, tmp_path_factory):
    """Write a page with every section from a plan and what is known about it."""

    def writing(plan_file, **answers):
        return _written(plan, plan_file, tmp_path_factory.mktemp("report"), answers)

    return writing


def _written(plan, plan_file, folder, answers):
    given = []
    for name, answer in answers.items():
        (folder / f"{name}.json").write_text(json.dumps(answer))
        given += [f"--{name}", folder / f"{name}.json"]
    done = plan("report", plan_file, "-o", folder / "report.html", *given)
    assert done.exit_code == 0, done.stderr
    return folder / "report.html"


@pytest.fixture(scope="module")
def of_pipelines(written, plan_json, plan_file, tiny):
    """The page about one pipeline."""
    stages = len(read_plan_file(plan_file).plan.stages)
    run = replace(RUN, plan_hash=sha256_of(to_tree(read_plan_file(plan_file))), stages=RUN.stages[:1] * stages)
    return written(
        plan_file,
        run=run_tree(run),
        solve=plan_json("solve", *tiny),
        compare=plan_json("compare", *tiny, "--solvers", "dp,greedy,even"),
        explain=plan_json("explain", plan_file, "--what-if", "memory"),
    )


@pytest.fixture(scope="module")
def of_workers(written, plan_json, tiny_folder, tmp_path_factory):
    """The page about two virtual workers."""
    path = tmp_path_factory.mktemp("waves") / "plan.json"
    files = ("--model", tiny_folder / "profile.yaml", "--cluster", tiny_folder / "cluster.yaml")
    arguments = (*files, "--synchronisation", "wsp", "--micro-batch", "4", "--workers", "2", "--time-limit", "10")
    solved = plan_json("solve", *arguments, "-o", path)
    return written(
        path,
        run=wave_run_tree(replace(WAVE_RUN, plan_hash=sha256_of(json.loads(path.read_text())))),
        solve=solved,
        compare=plan_json("compare", *arguments),
        explain=plan_json("explain", path, "--what-if", "memory"),
    )


@pytest.fixture
def path(request, of_pipelines):
    """The page about one pipeline, unless the test asks for another one."""
    return request.getfixturevalue(getattr(request, "param", "of_pipelines"))


@pytest.fixture
def opened(browser, path):
    """Open the page; the page, and what it logged, threw and asked the network for."""
    contexts = []

    def opening(*, width=1280, scheme="light"):
        contexts.append(browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme))
        page, said = contexts[-1].new_page(), []
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("request", lambda request: said.append(request.url) if request.url != path.as_uri() else None)
        page.goto(path.as_uri())
        page.wait_for_selector("html[data-drawn]", state="attached")
        return page, said

    yield opening
    for context in contexts:
        context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 400])
@pytest.mark.parametrize(
    ("path", "charts"),
    [
        ("of_pipelines", ["gantt", "parts", "memory", "links", "search", "compared", "run"]),
        ("of_workers", ["gantt", "parts", "links", "waits", "search", "compared", "run"]),
    ],
    indirect=["path"],
)
def test_nothing_is_cut_overlaps_or_is_said(opened, charts, width, scheme):
    page, said = opened(width=width, scheme=scheme)
    assert said == []
    page.evaluate("() => document.querySelectorAll('details').forEach((each) => (each.open = true))")
    assert page.evaluate("() => document.documentElement.scrollWidth") == width
    assert page.evaluate(CUT) == []
    assert page.evaluate(OVERLAPS) == []
    drawn = page.evaluate(
        "() => [...document.querySelectorAll('.chart')].map((each) => [each.id, !!each.querySelector('canvas')])"
    )
    assert drawn == [[f"{name}-chart", True] for name in charts]


def test_colours_follow_the_browser_and_the_switch(opened):
    page, said = opened(scheme="dark")
    background = "() => getComputedStyle(document.body).backgroundColor"
    dark = page.evaluate(background)
    page.get_by_role("button", name="Switch to light colours").click()
    light = page.evaluate(background)
    assert (dark, light) == ("rgb(20, 23, 27)", "rgb(255, 255, 255)")
    page.get_by_role("button", name="Switch to dark colours").click()
    assert page.evaluate(background) == dark
    assert said == []


def test_timeline_is_read_and_zoomed_by_keyboard(opened):
    """The first bar is a forward of the first samples on stage 0, from the very beginning."""
    page, said = opened()
    page.locator("#gantt-chart").focus()
    page.keyboard.press("ArrowRight")
    first = page.locator("#gantt-readout").inner_text()
    assert first.startswith("Stage 0 ")
    assert "forward of sample" in first
    assert "from 0 to" in first
    zoom = "() => echarts.getInstanceByDom(document.getElementById('gantt-chart')).getOption().dataZoom[0]"
    page.keyboard.press("+")
    shown = page.evaluate(zoom)
    assert shown["end"] - shown["start"] == pytest.approx(50)
    page.keyboard.press("ArrowRight")
    assert page.locator("#gantt-readout").inner_text() != first
    page.keyboard.press("0")
    shown = page.evaluate(zoom)
    assert (shown["start"], shown["end"]) == (0, 100)
    assert said == []


@pytest.mark.parametrize("path", ["of_workers"], indirect=True)
def test_timeline_of_workers_is_read_by_keyboard(opened):
    """The first bar is a forward of the first minibatch; the row below is the next stage of the same worker."""
    page, said = opened()
    page.locator("#gantt-chart").focus()
    page.keyboard.press("ArrowRight")
    first = page.locator("#gantt-readout").inner_text()
    assert first.startswith("Stage 0:0 ")
    assert "forward of minibatch 1: " in first
    page.keyboard.press("ArrowDown")
    assert page.locator("#gantt-readout").inner_text().startswith("Stage 0:1 ")
    assert said == []


def test_focus_is_seen_on_every_control(opened):
    page, _ = opened()
    reached = set()
    for _ in range(60):
        page.keyboard.press("Tab")
        outline = page.evaluate("() => getComputedStyle(document.activeElement).outlineStyle")
        reached.add(page.evaluate("() => document.activeElement.id"))
        assert outline != "none" or page.evaluate("() => document.activeElement === document.body")
    assert {"scheme", "zoom-in", "zoom-out", "earlier", "later", "whole", "gantt-chart", "lane"} <= reached
