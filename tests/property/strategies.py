"""Hypothesis strategies for problems small enough to enumerate.

All numbers come from small grids, so that ties and exactly full memories occur. A strategy is made once for the same
arguments, which saves a quarter of the time to draw from it.
"""

from dataclasses import replace
from functools import cache, lru_cache

from hypothesis import strategies as st

from stagecut.planner.core.cluster import (
    UNLIMITED,
    AllReduceTable,
    Cluster,
    DeviceType,
    Island,
    Link,
    NetworkOverride,
    Server,
)
from stagecut.planner.core.job import AUTO, Job, Optimizer, Recompute
from stagecut.planner.core.model import Layer, ModelProfile, SkipEdge, TimeTable
from stagecut.planner.core.precision import Precision
from stagecut.planner.core.problem import Problem
from stagecut.planner.core.schedule import Schedule

TYPE_NAMES = ("fast", "slow", "odd")
SCHEDULES = tuple(schedule for schedule in Schedule if schedule is not Schedule.INTERLEAVED)
"""Those that every solver knows."""
SECONDS = st.sampled_from((0.0, 1.0, 2.0, 3.0, 5.0))
BYTES = st.sampled_from((0.0, 1.0, 2.0, 4.0))


@lru_cache(maxsize=None, typed=True)
def sampled(*values):
    """Any of these, the simplest first; `st.sampled_from` would check them again with every draw."""
    return st.sampled_from(values)


@cache
def optional(strategy):
    """Nothing, or what the strategy gives."""
    return st.none() | strategy


@cache
def mostly_large(largest):
    """1 .. largest, half of the time at least largest - 1."""
    return st.one_of(st.integers(max(1, largest - 1), largest), st.integers(1, largest))


@cache
@st.composite
def points(draw, *, least=1):
    """Measured bytes and seconds of any form: flat, bent upwards or downwards."""
    sizes = draw(st.sets(sampled(0.0, 1.0, 2.0, 4.0, 8.0), min_size=least, max_size=3))
    seconds = sorted(draw(sampled(0.0, 0.5, 1.0, 2.0, 5.0)) for _ in sizes)
    return tuple(zip(sorted(sizes), seconds, strict=True))


@cache
@st.composite
def links(draw, *, measured=False):
    """Unlimited, fast or slow beside layers of a few seconds that send a few bytes; sometimes with a table."""
    if draw(st.booleans()):
        return UNLIMITED
    return Link(
        bandwidth_bytes_per_s=draw(sampled(0.5, 2.0, 8.0, float("inf"))),
        latency_s=draw(sampled(0.0, 0.0, 0.5, 2.0)),
        table=draw(points()) if measured and draw(st.booleans()) else (),
    )


@cache
@st.composite
def all_reduces(draw):
    """Measured among two devices, three or four."""
    numbers = sorted(draw(st.sets(st.integers(2, 4), max_size=3)))
    return tuple(AllReduceTable(num_devices=number, table=draw(points(least=2))) for number in numbers)


@cache
@st.composite
def time_tables(draw, device_type, *, tensor_parallel=1):
    """Times at one or two micro-batch sizes, not always in proportion to the size."""
    samples = draw(sampled((1,), (1, 2), (2, 4)))
    return TimeTable(
        device_type=device_type,
        tensor_parallel=tensor_parallel,
        samples=samples,
        forward_s=tuple(draw(SECONDS) for _ in samples),
        backward_s=tuple(draw(SECONDS) for _ in samples),
    )


@cache
@st.composite
def layers(draw, *, name, shareable, measured):
    """A layer with times on the named device types, some of them measured on two devices that share the layer."""
    shared = shareable and draw(st.booleans())
    tables = [draw(time_tables(kind)) for kind in measured]
    if shared and draw(st.booleans()):
        tables += [draw(time_tables(kind, tensor_parallel=2)) for kind in measured]
    return Layer(
        name=name,
        params_bytes=draw(BYTES),
        forward_flops=draw(sampled(1.0, 2.0, 4.0)),
        saved_bytes=draw(BYTES),
        output_bytes=draw(BYTES),
        working_bytes=draw(BYTES),
        tensor_parallel_bytes=draw(BYTES) if shared else None,
        times=tuple(tables),
    )


@cache
@st.composite
def models(draw, *, max_layers=7, measured=TYPE_NAMES):
    """A chain of layers, sometimes with a skip edge, of which devices can share some, all or none."""
    num_layers = draw(mostly_large(max_layers))
    shareable = draw(st.booleans())
    chain = tuple(
        draw(layers(name=f"layer-{index}", shareable=shareable, measured=measured)) for index in range(num_layers)
    )
    edges = ()
    if num_layers >= 3 and draw(st.booleans()):
        source = draw(st.integers(0, num_layers - 3))
        target = draw(st.integers(source + 2, num_layers - 1))
        earlier = (source + 1,) if draw(st.booleans()) else ()
        edges = (SkipEdge(source=source, target=target, num_bytes=2.0, earlier_targets=earlier),)
    return ModelProfile(name="chain", layers=chain, skip_edges=edges, precision=Precision.FP16)


@cache
@st.composite
def device_types(draw, name):
    """A kind of device with unlimited, loose or tight memory."""
    return DeviceType(
        name=name,
        peak_flops_per_s=((Precision.FP16, draw(sampled(1.0, 2.0))),),
        memory_bytes=draw(sampled(float("inf"), float("inf"), 200.0, 80.0, 40.0)),
        memory_bandwidth_bytes_per_s=draw(sampled(float("inf"), 8.0, 2.0)),
        launch_s=draw(sampled(0.0, 0.0, 1.0)),
    )


@cache
@st.composite
def clusters(draw, *, max_devices=4, tables=True):
    """Classes of one or several hosts, hosts of one or two islands; a third of them with measured times if allowed."""
    servers, left = [], draw(mostly_large(max_devices))
    measured = tables and draw(sampled(False, False, True))
    while left > 0:
        first = draw(st.integers(1, min(left, 3)))
        most = min(left - first, 3)
        second = draw(st.integers(1, most)) if most and draw(st.booleans()) else 0
        shape = (first, second) if second else (first,)
        count = draw(st.integers(1, left // sum(shape)))
        islands = tuple(
            Island(
                device_type=draw(sampled(*TYPE_NAMES)),
                count=size,
                fabric=draw(links(measured=measured)),
                shared=draw(st.booleans()),
                all_reduce=draw(all_reduces()) if measured else (),
            )
            for size in shape
        )
        bridge = draw(optional(links(measured=measured)))
        servers.append(
            Server(name=f"server{len(servers)}", islands=islands, count=count, nic=draw(links()), bridge=bridge)
        )
        left -= count * sum(shape)
    pairs = st.tuples(st.sampled_from(servers), st.sampled_from(servers))
    overrides = tuple(
        NetworkOverride(servers=(first.name, second.name), link=draw(links(measured=measured)))
        for first, second in draw(st.lists(pairs, max_size=1))
    )
    return Cluster(
        name="small",
        device_types=tuple(draw(device_types(name)) for name in TYPE_NAMES),
        servers=tuple(servers),
        network=draw(links(measured=measured)),
        overrides=overrides,
    )


@cache
@st.composite
def jobs(draw, *, max_micro_batches=8, interleaved=False, sliced=False):
    """One or several schedules and micro-batch sizes, up to `max_micro_batches` micro-batches."""
    micro_batches = draw(st.sampled_from(((2,), (1, 2), (2, 4)) if sliced else ((1,), (2,), (1, 2), (2, 4))))
    num = draw(mostly_large(max_micro_batches * min(micro_batches) // max(micro_batches)))
    schedules = draw(sampled(*((schedule,) for schedule in SCHEDULES), SCHEDULES))
    if interleaved and draw(st.booleans()):
        schedules = draw(sampled((Schedule.INTERLEAVED,), (*schedules, Schedule.INTERLEAVED)))
    return Job(
        global_batch=num * max(micro_batches),
        optimizer=Optimizer(name="small", weight_bytes=1.0, gradient_bytes=1.0, state_bytes=2.0),
        precision=Precision.FP16,
        micro_batches=micro_batches,
        schedules=schedules,
        recompute=draw(sampled(*Recompute)),
        replicas=draw(sampled(None, None, None, (1,), (1,), (1, 2), (2,))),
        tensor_parallel=draw(sampled(None, None, None, (1,), (2,), (1, 2))),
        zero1=draw(st.booleans()),
        chunks=draw(sampled((2,), (2,), (3,), (1, 2))),
        slice=draw(sampled(AUTO, AUTO, 1, 2, 5)) if sliced else 0,
        action_overhead_s=draw(sampled(0.0, 0.0, 0.25, 2.0)) if sliced else 0.0,
    )


@cache
@st.composite
def problems(
    draw,
    *,
    max_layers=7,
    max_devices=4,
    max_micro_batches=8,
    several_pipelines=True,
    interleaved=False,
    tables=True,
    sliced=False,
):
    """A small problem of any kind the search space knows; some of them have no plan.

    At least half of the problems allow a single pipeline only, the others any number, or the largest one.
    """
    measured = draw(sampled((), TYPE_NAMES, TYPE_NAMES[:1]))
    problem = Problem(
        model=draw(models(max_layers=max_layers, measured=measured)),
        cluster=draw(clusters(max_devices=max_devices, tables=tables)),
        job=draw(jobs(max_micro_batches=max_micro_batches, interleaved=interleaved, sliced=sliced)),
    )
    most = max(variant.share.num_pipelines for variant in problem.variants)
    pipelines = draw(st.sampled_from(((1,), (1,), None, (most,)) if several_pipelines else ((1,),)))
    return replace(problem, job=replace(problem.job, pipelines=pipelines))
