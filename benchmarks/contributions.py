"""What parts of `milp` contribute: the same search with labels or MIPs alone, and without some families of rows.

Without labels, arc fixing bisects and the parts branch until their networks have positions and few enough arcs for
multipliers and HiGHS.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from functools import partial
from unittest.mock import patch

import numpy as np

from benchmarks.harness.driver import Jobs, Parts, Request, parts_under
from benchmarks.harness.measuring import Answer, Answers, Tree, Within, answers_of
from benchmarks.problems.specs import Spec
from benchmarks.report.pages import markdown, percent, whole_seconds
from stagecut.planner.network import rows
from stagecut.planner.network.allreduce_queues import AllReduceQueues, build_queues
from stagecut.planner.network.labels import counted_paths
from stagecut.planner.network.link_loads import LinkLoads, build_loads
from stagecut.planner.network.stage_network import StageNetwork
from stagecut.planner.solvers.exact import branch_and_bound
from stagecut.planner.solvers.search.options import SolveOptions

WAYS, FAMILIES = "ways: ", "families: "
"""Prefixes of the names of the parts."""
Columns = AllReduceQueues | LinkLoads


@contextmanager
def thresholds(
    *,
    program_arcs: int = branch_and_bound.PROGRAM_ARCS,
    without_labels: int = branch_and_bound.PROGRAM_ARCS_WITHOUT_LABELS,
    most_states: int = counted_paths.MAX_STATES,
) -> Iterator[None]:
    """Change from labels to MIPs elsewhere."""
    arcs = {"PROGRAM_ARCS": program_arcs, "PROGRAM_ARCS_WITHOUT_LABELS": without_labels}
    with patch.multiple(branch_and_bound, **arcs), patch.object(counted_paths, "MAX_STATES", most_states):
        yield


@contextmanager
def without_rows(*builders: str) -> Iterator[None]:
    """Leave out the rows of all-reduces that queue, of messages that share links, or both."""
    with patch.multiple(rows, **{builder: partial(_never, getattr(rows, builder)) for builder in builders}):
        yield


def _never(build: Callable[[StageNetwork], Columns], network: StageNetwork) -> Columns:
    return type(columns := build(network))(*(np.full_like(column, -np.inf) for column in columns))


LABELS_OR_MIPS: Mapping[str, Within] = {
    "labels only": partial(thresholds, program_arcs=0, without_labels=0),
    "MIPs only": partial(thresholds, most_states=0),
    "both, MIPs from 30 arcs": partial(thresholds, program_arcs=30),
    "both, MIPs from 300 arcs": partial(thresholds, program_arcs=300),
}
WITHOUT: Mapping[str, Within] = {
    "all rows": nullcontext,
    "without load": partial(without_rows, build_loads.__name__),
    "without queue": partial(without_rows, build_queues.__name__),
    "without both": partial(without_rows, build_queues.__name__, build_loads.__name__),
}


def jobs(*, ways: tuple[Spec, ...], families: tuple[Spec, ...]) -> Jobs:
    """Jobs by name of the part."""
    return {
        **{f"{WAYS}{spec.name}": partial(measure, spec, LABELS_OR_MIPS) for spec in ways},
        **{f"{FAMILIES}{spec.name}": partial(measure, spec, WITHOUT) for spec in families},
    }


def measure(spec: Spec, ways: Mapping[str, Within], request: Request) -> Tree:
    """The answer in each of the ways, with one job."""
    options = SolveOptions(time_limit_s=request.time_scale * spec.time_limit_s, jobs=1)
    return {way: request.answer(spec, "milp", options, within=within).answer.tree() for way, within in ways.items()}


def tables(parts: Parts) -> dict[str, str]:
    """Tables by marker."""
    return {
        "ways": gaps_table(_answers(parts, WAYS), LABELS_OR_MIPS),
        "families": gaps_table(_answers(parts, FAMILIES), WITHOUT),
    }


def gaps_table(found: Mapping[str, Answers], ways: Mapping[str, Within]) -> str:
    """The gap in each of the ways, when the search ended, and how many MIPs were solved."""
    return markdown(
        ["instance", *ways], [[name, *(_cell(answers[way]) for way in ways)] for name, answers in found.items()]
    )


def _cell(answer: Answer) -> str:
    programs = answer.counts.get("MIPs solved", 0)
    told = f", {programs:,} MIPs" if programs else ""
    return f"{percent(answer.gap)} after {whole_seconds(answer.search_s)}{told}"


def _answers(parts: Parts, prefix: str) -> dict[str, Answers]:
    return {name: answers_of(part) for name, part in parts_under(parts, prefix).items()}
