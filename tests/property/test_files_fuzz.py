"""Whatever is done to a valid file, reading it gives data or complaints, and nothing else."""

import copy
import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stagecut.planner.core.messages.errors import BadInputError
from stagecut.planner.core.operators.strategy import WHOLE_LOOP, LayerStrategy, StageSharding, Strategy
from stagecut.planner.core.plan import Pipeline, Plan, Stage
from stagecut.planner.core.problem import Problem
from stagecut.planner.core.result import Status
from stagecut.planner.core.schedule import Schedule
from stagecut.planner.core.share import Share
from stagecut.planner.io.documents.canonical import format_json
from stagecut.planner.io.documents.tree import parse_document
from stagecut.planner.io.files.cluster import read_cluster
from stagecut.planner.io.files.job import read_job
from stagecut.planner.io.files.plan_file import PlanFile, provenance_of, read_plan_file, to_tree
from stagecut.planner.io.files.plan_statements import Certificate, Prediction, StagePrediction
from stagecut.planner.io.files.profile import read_profile

TINY = Path(__file__).parents[2] / "examples" / "tiny"
READERS = {"profile": read_profile, "cluster": read_cluster, "job": read_job, "plan": read_plan_file}
ODD_BYTES = (
    b"",
    b"\0",
    b"\xff",
    b"\t",
    b"\n",
    b"&a ",
    b"*a",
    b"!!x ",
    b"{",
    b"[",
    b"]",
    b'"',
    b"---\n",
    b": ",
    b"- ",
    b"# ",
)
ODD_VALUES = (
    *(None, True, False, 0, -1, 1, 3, 2.5, -0.0, 1e-320, 1e308, 10**30, 10**400, float("inf"), float("nan")),
    *("", "3", "yes", "unlimited", "fp16", "V100", "fast", "embedding", "\x00", "\ud800", "\u2028", "x" * 3000),
    *([], {}, [[]], {"1": 1}, {"": {}}, [None], ["fast", "slow"]),
)


def _plan_text():
    problem = Problem(
        model=read_profile(TINY / "profile.yaml"),
        cluster=read_cluster(TINY / "cluster.yaml"),
        job=read_job(TINY / "job.yaml"),
    )
    sizes = {"forward_micro_batch": 4, "backward_micro_batch": 4}
    whole = LayerStrategy(operators=(Strategy(splits=(WHOLE_LOOP,)),))
    sharding = StageSharding(mesh=(1,), layers=(whole,) * 4)
    pipelines = tuple(
        Pipeline(
            stages=(
                Stage(start=0, stop=4, devices=(f"fast/{number}",), warmup_depth=2, sharding=sharding, **sizes),
                Stage(start=4, stop=6, devices=(f"slow/{number}",), recompute=True, warmup_depth=1, **sizes),
            )
        )
        for number in range(2)
    )
    share = Share(num_pipelines=2, host_splits=(1, 1))
    times = dict.fromkeys(("forward_s", "backward_s", "transfer_s", "sync_s", "update_s"), 0.5)
    predicted = StagePrediction(memory_bytes=1e9, limit_bytes=16e9, **times)
    plan_file = PlanFile(
        problem=problem,
        plan=Plan(schedule=Schedule.ONE_F_ONE_B, micro_batch=4, num_microbatches=4, pipelines=pipelines, share=share),
        predicted=Prediction(iteration_s=2.5, stages=(predicted, predicted)),
        certificate=Certificate(status=Status.FEASIBLE, solver="milp", objective_s=2.5),
        provenance=provenance_of(problem, {"gap": 1e-4}, seed=0),
    )
    return format_json(to_tree(plan_file))


TEXTS = {kind: (TINY / f"{kind}.yaml").read_text() for kind in ("profile", "cluster", "job")} | {"plan": _plan_text()}
TREES = {kind: parse_document(text, file=kind).root.plain() for kind, text in TEXTS.items()}


@st.composite
def mutated_bytes(draw, text):
    """Up to four pieces cut out, doubled or replaced."""
    content = text.encode()
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(content)))
        stop = min(len(content), start + draw(st.integers(0, 40)))
        piece = content[start:stop]
        new = draw(st.sampled_from((b"", piece * 2, *ODD_BYTES)) | st.binary(max_size=4))
        content = content[:start] + new + content[stop:]
    return content


@st.composite
def mutated_trees(draw, tree):
    """Up to three values replaced, removed, doubled or given another key."""
    changed = copy.deepcopy(tree)
    for _ in range(draw(st.integers(1, 3))):
        _mutate(draw, changed)
    return changed


def _mutate(draw, tree):
    places = list(_places(tree))
    if not places:
        return
    parent, step = draw(st.sampled_from(places))
    action = draw(st.sampled_from(("replace", "replace", "remove", "double", "swap")))
    if action == "replace":
        parent[step] = copy.deepcopy(draw(st.sampled_from(ODD_VALUES) | st.integers(-2, 9) | st.text(max_size=3)))
    elif action == "remove":
        del parent[step]
    elif action == "double" and isinstance(parent, list):
        parent.append(copy.deepcopy(parent[step]))
    elif action == "double":
        parent[draw(st.sampled_from((f"{step}s", str(step).upper(), "name", "\n")))] = copy.deepcopy(parent[step])
    else:
        other, other_step = draw(st.sampled_from(places))
        values = copy.deepcopy((other[other_step], parent[step]))
        parent[step], other[other_step] = values


def _places(tree):
    steps = tree if isinstance(tree, dict) else range(len(tree)) if isinstance(tree, list) else ()
    for step in list(steps):
        yield tree, step
        yield from _places(tree[step])


def check(tmp_path_factory, kind, content):
    """Read it from a file; every complaint names the file, and most say where."""
    path = tmp_path_factory.getbasetemp() / f"fuzz-{kind}"
    path.write_bytes(content)
    try:
        READERS[kind](path)
    except BadInputError as error:
        assert error.complaints
        assert all(complaint.startswith(f"{path}:") for complaint in error.complaints)


@pytest.mark.parametrize("kind", READERS)
def test_untouched_file_is_read(kind, tmp_path_factory):
    for content in (TEXTS[kind], json.dumps(TREES[kind])):
        path = tmp_path_factory.getbasetemp() / f"whole-{kind}"
        path.write_text(content)
        READERS[kind](path)


@pytest.mark.parametrize("kind", READERS)
@given(data=st.data())
@settings(max_examples=100)
def test_mutated_bytes_give_data_or_complaints(kind, data, tmp_path_factory):
    check(tmp_path_factory, kind, data.draw(mutated_bytes(TEXTS[kind])))


@pytest.mark.parametrize("kind", READERS)
@given(data=st.data())
@settings(max_examples=100)
def test_mutated_trees_give_data_or_complaints(kind, data, tmp_path_factory):
    tree = data.draw(mutated_trees(TREES[kind]))
    check(tmp_path_factory, kind, json.dumps(tree).encode())


@pytest.mark.parametrize("kind", READERS)
@given(content=st.binary(max_size=200) | st.text(max_size=100).map(str.encode))
@settings(max_examples=60)
def test_any_bytes_give_data_or_complaints(kind, content, tmp_path_factory):
    check(tmp_path_factory, kind, content)
