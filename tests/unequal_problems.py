"""A problem of two stages with setups, whose best sublot sizes are derived by hand."""

from stagecut.planner.core.cluster import Cluster, Island, Link, Server
from stagecut.planner.core.job import Job
from stagecut.planner.core.model import Layer, ModelProfile, TimeTable
from stagecut.planner.core.problem import Problem
from stagecut.planner.core.schedule import Schedule
from tests.catalogue import NOTHING_KEPT, kinds

SIZES = (1, 2, 4)


def layer(name, kind, other, *, setup_s, per_sample_s):
    """T(x) = a + c x forwards, twice that backwards, at 1, 2 and 4 samples on one kind; 1000 s on the other.

    It has a byte of weights, saves a byte per sample, and works on a byte per sample.
    """
    forward_s = tuple(setup_s + per_sample_s * size for size in SIZES)
    backward_s = tuple(2 * seconds for seconds in forward_s)
    times = TimeTable(device_type=kind, samples=SIZES, forward_s=forward_s, backward_s=backward_s)
    never = TimeTable(device_type=other, samples=(1,), forward_s=(1000.0,), backward_s=(1000.0,))
    return Layer(name=name, times=(times, never), params_bytes=1.0, saved_bytes=1.0, working_bytes=1.0)


def two_kinds(*, batch=4, memory_bytes=float("inf"), **choices):
    """The first layer runs on one kind of device, the second on another: two stages and instant messages.

    First layer 4 + x s, second 3 x s without setup. Forwards of 4 samples: sizes (4, 4) take 8 + 12 = 20 s; (2, 2)
    take 6 + 6, the second pair from 12 to 18: 18 s; (2, 1) take the second pair at 12 as well, until 18; (1, 1) wait
    for 5, 10, 15, 20 and end at 23. Backwards are twice as long on the reversed line, where the second layer starts:
    with (1, 2) it ends samples at 6, 12, 18, 24, and the first layer takes 12 s for each pair, from 12 and 24: 36 s;
    with (1, 4) it is 24 + 16 = 40. So 18 + 36 = 54 s is the best flush, with pairs throughout.
    """
    layers = (
        layer("first", "slow-start", "even", setup_s=4.0, per_sample_s=1.0),
        layer("second", "even", "slow-start", setup_s=0.0, per_sample_s=3.0),
    )
    types = kinds(**dict.fromkeys(("slow-start", "even"), memory_bytes))
    servers = tuple(Server(name=kind.name, islands=(Island(device_type=kind.name, count=1),)) for kind in types)
    instant = Link(bandwidth_bytes_per_s=float("inf"), latency_s=0.0)
    allowed = {"micro_batches": SIZES, "schedules": (Schedule.GPIPE,), "pipelines": (1,), "unequal": True} | choices
    return Problem(
        model=ModelProfile(name="two", layers=layers),
        cluster=Cluster(name="two", device_types=types, servers=servers, network=instant),
        job=Job(global_batch=batch, optimizer=NOTHING_KEPT, **allowed),
    )
