"""Core data written to text and read back is the same data."""

import dataclasses
import json
from itertools import combinations
from string import ascii_lowercase

from hypothesis import assume, given, reject, settings
from hypothesis import strategies as st

from stagecut.planner.core.cluster import AllReduceTable, Cluster, DeviceType, Island, Link, NetworkOverride, Server
from stagecut.planner.core.job import ACTION_OVERHEAD_S, AUTO, Job, Optimizer, Recompute
from stagecut.planner.core.messages.errors import BadInputError
from stagecut.planner.core.model import Layer, ModelProfile, SkipEdge, TimeTable
from stagecut.planner.core.plan import Pipeline, Plan, Stage
from stagecut.planner.core.precision import Precision
from stagecut.planner.core.problem import Problem
from stagecut.planner.core.result import Status
from stagecut.planner.core.schedule import Schedule, can_slice, warmup_depths
from stagecut.planner.core.share import device_names
from stagecut.planner.io.documents.canonical import format_json
from stagecut.planner.io.documents.tree import parse_document
from stagecut.planner.io.files import cluster, job, plan_file, profile
from stagecut.planner.io.files.plan_file import PlanFile, provenance_of
from stagecut.planner.io.files.plan_statements import Certificate, Prediction, StagePrediction

DEVICE_TYPES = ("A100", "T4", "V 100")
INFINITY = float("inf")

characters = st.characters(exclude_categories=["Cs", "Cc", "Zl", "Zp"])
names = st.text(characters, min_size=1, max_size=6) | st.sampled_from(("yes", "null", "1e9", "#", "- a", "{}", "3"))
texts = st.text(st.characters(exclude_categories=["Cs", "Cc"]) | st.sampled_from("\n\t"), max_size=8)
amounts = st.floats(0, 1e30) | st.integers(0, 2**53)
positives = st.floats(1e-30, 1e30)
limits = positives | st.just(INFINITY)
counts = st.lists(st.integers(1, 8), min_size=1, max_size=3, unique=True).map(tuple)
interfaces = st.builds(Link, bandwidth_bytes_per_s=limits, latency_s=amounts, source=texts)


@st.composite
def points(draw, least=1):
    """Points of measured times, whose sizes are at least a byte apart."""
    sizes = sorted(draw(st.sets(st.integers(0, 2**53), min_size=least, max_size=4)))
    return tuple(zip(sizes, sorted(draw(amounts) for _ in sizes), strict=True))


links = st.builds(Link, bandwidth_bytes_per_s=limits, latency_s=amounts, source=texts, table=st.just(()) | points())


@st.composite
def all_reduces(draw):
    """All-reduce times in order of the number of devices, as they are read."""
    numbers = sorted(draw(st.sets(st.integers(2, 99_999), max_size=2)))
    return tuple(AllReduceTable(num_devices=number, table=draw(points(2))) for number in numbers)


@st.composite
def time_tables(draw, device_type, *, tensor_parallel=1):
    samples = tuple(sorted(draw(st.sets(st.integers(1, 10**9 - 1), min_size=1, max_size=3))))
    column = st.tuples(*[amounts] * len(samples))
    return TimeTable(
        device_type=device_type,
        tensor_parallel=tensor_parallel,
        samples=samples,
        forward_s=draw(column),
        backward_s=draw(column),
    )


@st.composite
def times_of_layers(draw, *, shared):
    """Layer times in order of the number of devices and of the names of their types, as they are read."""
    degrees = (1, 2, 4) if shared else (1,)
    pairs = ((degree, kind) for degree in degrees for kind in DEVICE_TYPES)
    return tuple(draw(time_tables(kind, tensor_parallel=degree)) for degree, kind in pairs if draw(st.booleans()))


@st.composite
def profiles(draw, precision=None):
    layers = tuple(
        Layer(
            name=name,
            kind=draw(names),
            tensor_parallel_bytes=shared,
            times=draw(times_of_layers(shared=shared is not None)),
            **{field: draw(amounts) for field in ("params_bytes", "forward_flops", "saved_bytes", "output_bytes")},
        )
        for name in draw(st.lists(names, min_size=1, max_size=4, unique=True))
        for shared in (draw(st.none() | amounts),)
    )
    ends = [ends for number in (2, 3, 4) for ends in combinations(range(len(layers)), number)]
    edges = draw(st.lists(st.sampled_from(ends), max_size=2)) if ends else []
    return ModelProfile(
        name=draw(names),
        layers=layers,
        skip_edges=tuple(
            SkipEdge(source=source, target=last, earlier_targets=tuple(earlier), num_bytes=draw(amounts))
            for source, *earlier, last in edges
        ),
        precision=precision or draw(st.sampled_from(Precision)),
        sequence_length=draw(st.none() | st.integers(1, 10**9)),
    )


@st.composite
def device_types(draw, name, *, every_peak):
    stated = sorted(kind for kind in Precision if every_peak or draw(st.booleans()))
    return DeviceType(
        name=name,
        peak_flops_per_s=tuple((kind, draw(positives)) for kind in stated),
        memory_bytes=draw(limits),
        memory_bandwidth_bytes_per_s=draw(limits),
        efficiency=draw(st.floats(1e-30, 1)),
        launch_s=draw(amounts),
        source=draw(texts),
    )


@st.composite
def servers(draw, name):
    island = st.builds(
        Island,
        device_type=st.sampled_from(DEVICE_TYPES),
        count=st.integers(1, 4),
        fabric=links,
        shared=st.booleans(),
        all_reduce=all_reduces(),
    )
    return Server(
        name=name,
        islands=tuple(draw(st.lists(island, min_size=1, max_size=2))),
        count=draw(st.integers(1, 3)),
        nic=draw(interfaces),
        bridge=draw(st.none() | links),
    )


@st.composite
def clusters(draw, *, every_peak=False):
    server_names = draw(st.lists(names, min_size=1, max_size=3, unique=True))
    pairs = [(a, b) for i, a in enumerate(server_names) for b in server_names[i:]]
    chosen = draw(st.lists(st.sampled_from(pairs), max_size=2, unique=True))
    try:
        return Cluster(
            name=draw(names),
            device_types=tuple(draw(device_types(name, every_peak=every_peak)) for name in DEVICE_TYPES),
            servers=tuple(draw(servers(name)) for name in server_names),
            network=draw(links),
            overrides=tuple(NetworkOverride(servers=pair, link=draw(links)) for pair in chosen),
        )
    except BadInputError:  # names of hosts that collide
        assume(False)


@st.composite
def jobs(draw, precision=None, *, any_pipelines=True):
    sizes = draw(st.lists(st.integers(1, 16), min_size=1, max_size=3, unique=True))
    return Job(
        global_batch=sizes[0] * draw(st.integers(1, 1000)),
        optimizer=draw(
            st.builds(Optimizer, name=names, weight_bytes=amounts, gradient_bytes=amounts, state_bytes=amounts)
        ),
        precision=precision or draw(st.sampled_from(Precision)),
        micro_batches=tuple(sizes),
        schedules=tuple(draw(st.lists(st.sampled_from(Schedule), min_size=1, unique=True))),
        recompute=draw(st.sampled_from(Recompute)),
        replicas=draw(st.none() | counts),
        tensor_parallel=draw(st.none() | st.sampled_from(((1,), (2, 1), (8,)))),
        pipelines=draw(st.none() | counts) if any_pipelines else None,
        zero1=draw(st.booleans()),
        chunks=draw(counts),
        slice=draw(st.sampled_from((0, 0, AUTO, 1, 7))),
        action_overhead_s=draw(st.sampled_from((ACTION_OVERHEAD_S, 0.0)) | st.floats(0, 1e30)),
    )


@st.composite
def plans(draw, problem):
    """One device per device group, as many stages as layers and devices allow."""
    variant = draw(st.sampled_from(problem.variants))
    names = [device_names(problem.cluster, variant.share, number) for number in range(variant.share.num_pipelines)]
    devices = draw(st.permutations(list(names[0])))
    num_layers = problem.model.num_layers
    most = min(num_layers // variant.chunks, len(devices))
    possible = [number for number in range(1, most + 1) if _can_run(variant, number)]
    assume(possible)
    num_stages = draw(st.sampled_from(possible)) * variant.chunks
    cuts = draw(st.permutations(range(1, num_layers)))[: num_stages - 1]
    ends = [0, *sorted(cuts), num_layers]
    depths = warmup_depths(variant.schedule, num_stages, variant.num_microbatches, chunks=variant.chunks)
    stages = [
        Stage(
            start=ends[index],
            stop=ends[index + 1],
            devices=(devices[index % (num_stages // variant.chunks)],),
            recompute=draw(st.booleans()),
            warmup_depth=depths[index],
            forward_micro_batch=variant.micro_batch,
            backward_micro_batch=variant.micro_batch,
        )
        for index in range(num_stages)
    ]
    return Plan(
        schedule=variant.schedule,
        micro_batch=variant.micro_batch,
        num_microbatches=variant.num_microbatches,
        pipelines=tuple(
            Pipeline(
                stages=tuple(
                    dataclasses.replace(stage, devices=tuple(own[name] for name in stage.devices)) for stage in stages
                )
            )
            for own in names
        ),
        share=variant.share,
        chunks=variant.chunks,
        num_sliced=draw(st.integers(0, variant.num_microbatches))
        if can_slice(variant.schedule, variant.micro_batch)
        else 0,
    )


def _can_run(variant, num_groups):
    return variant.schedule is not Schedule.INTERLEAVED or variant.num_microbatches % num_groups == 0


@st.composite
def plan_files(draw):
    precision = draw(st.sampled_from(Precision))
    model, cluster_, job_ = (
        draw(profiles(precision)),
        draw(clusters(every_peak=True)),
        draw(jobs(precision, any_pipelines=False)),
    )
    try:
        problem = Problem(model=model, cluster=cluster_, job=job_)
    except BadInputError:  # times on other devices only, and nothing to estimate others from
        reject()
    plan = draw(plans(problem))
    stage = st.builds(
        StagePrediction,
        **{field.name: amounts for field in dataclasses.fields(StagePrediction)} | {"limit_bytes": limits},
    )
    options = draw(st.dictionaries(names, st.none() | st.booleans() | st.integers(0) | amounts | texts, max_size=3))
    return PlanFile(
        problem=problem,
        plan=plan,
        predicted=Prediction(iteration_s=draw(amounts), stages=tuple(draw(stage) for _ in plan.stages)),
        certificate=Certificate(
            status=draw(st.sampled_from((Status.OPTIMAL, Status.FEASIBLE, Status.INTERRUPTED))),
            solver=draw(names),
            objective_s=draw(amounts),
            bound_s=draw(st.none() | amounts),
            gap=draw(st.none() | amounts),
            seconds=draw(st.none() | amounts),
        ),
        provenance=provenance_of(problem, options, seed=draw(st.integers(0, 2**63 - 1))),
    )


def texts_of(tree):
    """The canonical text, and two that other programs would write."""
    yield format_json(tree)
    yield json.dumps(tree, ensure_ascii=False, indent="\t")
    yield json.dumps(tree)


def check_round_trip(data, to_tree, read):
    tree = to_tree(data)
    for text in texts_of(tree):
        again = read(parse_document(text, file="f"))
        assert again == data
        assert format_json(to_tree(again)) == format_json(tree)


@given(profiles())
@settings(max_examples=35)
def test_profile_reads_back_equal(model):
    check_round_trip(model, profile.to_tree, profile.profile_of)


@given(clusters())
@settings(max_examples=35)
def test_cluster_reads_back_equal(data):
    check_round_trip(data, cluster.to_tree, cluster.cluster_of)


@given(jobs())
@settings(max_examples=35)
def test_job_reads_back_equal(data):
    check_round_trip(data, job.to_tree, job.job_of)


@given(plan_files())
@settings(max_examples=25)
def test_plan_file_reads_back_equal(data):
    check_round_trip(data, plan_file.to_tree, plan_file.plan_file_of)


@given(profiles(), st.randoms(use_true_random=False))
@settings(max_examples=20)
def test_order_of_keys_changes_nothing(model, random):
    def shuffled(value):
        if isinstance(value, dict):
            keys = list(value)
            random.shuffle(keys)
            return {key: shuffled(value[key]) for key in keys}
        return [shuffled(part) for part in value] if isinstance(value, list) else value

    text = json.dumps(shuffled(profile.to_tree(model)))
    assert profile.profile_of(parse_document(text, file="f")) == model


@given(st.floats(1e-30, 1e30), st.text(ascii_lowercase, min_size=1))
@settings(max_examples=30)
def test_every_float_reads_back_to_the_last_bit(value, name):
    tree = {"schema": 1, "name": name, "layers": [{"name": name, "params_bytes": value}]}
    assert profile.profile_of(parse_document(format_json(tree), file="f")).layers[0].params_bytes == value
