"""Problems whose optimum is derived by hand; every solver is run on them."""

from dataclasses import dataclass, replace

from stagecut.planner.core.cluster import UNLIMITED, Cluster, DeviceType, Island, Link, Server
from stagecut.planner.core.job import Job, Optimizer, Recompute
from stagecut.planner.core.model import Layer, ModelProfile, TimeTable
from stagecut.planner.core.problem import Problem
from stagecut.planner.core.schedule import Schedule

NOTHING_KEPT = Optimizer(name="nothing", weight_bytes=0.0, gradient_bytes=0.0, state_bytes=0.0)
WEIGHTS_ONLY = Optimizer(name="weights", weight_bytes=1.0, gradient_bytes=0.0, state_bytes=0.0)
GRADIENTS = Optimizer(name="gradients", weight_bytes=0.0, gradient_bytes=1.0, state_bytes=0.0)
"""A parameter of 2 bytes has 1 byte of gradient."""
INFINITE = float("inf")
PLAIN_SCHEDULES = tuple(schedule for schedule in Schedule if schedule is not Schedule.INTERLEAVED)
"""Those that every solver knows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownOptimum:
    """A problem and the iteration time of its best plan; None where nothing fits."""

    name: str
    problem: Problem
    optimum_s: float | None


def layer(name, seconds, *, forward_share=0.5, **bytes_):
    """A layer with F + B seconds per sample on each device type, in proportion to the samples."""
    times = tuple(
        TimeTable(device_type=kind, samples=(1,), forward_s=(forward_share * t,), backward_s=((1 - forward_share) * t,))
        for kind, t in seconds.items()
    )
    return Layer(name=name, times=times, **bytes_)


def chain(num_layers, seconds, **bytes_):
    """Equal layers."""
    layers = tuple(layer(f"layer-{index}", seconds, **bytes_) for index in range(num_layers))
    return ModelProfile(name="chain", layers=layers)


def kinds(**memory_bytes):
    """Device types of measured speed, by name, with their memory."""
    return tuple(DeviceType(name=name, peak_flops_per_s=(), memory_bytes=size) for name, size in memory_bytes.items())


def one_device_per_server(*names, network=UNLIMITED, memory_bytes=INFINITE):
    """A server of one device for each name."""
    servers = tuple(
        Server(name=f"host-{index}", islands=(Island(device_type=name, count=1),)) for index, name in enumerate(names)
    )
    types = kinds(**dict.fromkeys(names, memory_bytes))
    return Cluster(name="separate", device_types=types, servers=servers, network=network)


def one_server(name, count, *, fabric=UNLIMITED, memory_bytes=INFINITE):
    """One server with several devices of a kind."""
    island = Island(device_type=name, count=count, fabric=fabric)
    server = Server(name="host", islands=(island,))
    return Cluster(name="together", device_types=kinds(**{name: memory_bytes}), servers=(server,))


def job(num_microbatches, *, micro_batch=1, schedule=Schedule.ONE_F_ONE_B, **choices):
    """A job with one micro-batch size and one schedule, for one pipeline unless said otherwise."""
    choices = {"optimizer": NOTHING_KEPT, "pipelines": (1,)} | choices
    return Job(
        global_batch=num_microbatches * micro_batch, micro_batches=(micro_batch,), schedules=(schedule,), **choices
    )


def with_links(problem, *, bandwidth_bytes_per_s):
    """The problem with every link that fast, and every fabric shared."""
    link = Link(bandwidth_bytes_per_s=bandwidth_bytes_per_s)
    servers = tuple(
        replace(
            server,
            nic=link,
            bridge=link,
            islands=tuple(replace(island, fabric=link, shared=True) for island in server.islands),
        )
        for server in problem.cluster.servers
    )
    return replace(problem, cluster=replace(problem.cluster, servers=servers))


def fast_and_slow():
    """A fast host, 1 s a layer, and a slow one, 3 s, each with memory for one of two layers; one micro-batch."""
    return Problem(
        model=chain(2, {"fast": 1.0, "slow": 3.0}, params_bytes=2.0),
        cluster=one_device_per_server("fast", "slow", memory_bytes=1.0),
        job=job(1, optimizer=WEIGHTS_ONLY),
    )


def _single_device():
    """4 micro-batches x 3 layers x 2 s."""
    return Problem(model=chain(3, {"gpu": 2.0}), cluster=one_device_per_server("gpu"), job=job(4))


def _two_equal_devices(schedule):
    """Two stages of 2 layers: one fill of 4 + 4 s, then 3 more micro-batches of 4 s: (M + S - 1) x 4 = 20.

    No plan is faster: the busiest stage has at least 2 of the 4 layers. With exactly 2, total = 8 and
    the fill row of the last stage (k = 1; under GPipe the flush row) says 8 + 3 x 4. With 3 it works
    4 x 6 = 24 s, with all 4, 32 s.
    """
    return Problem(
        model=chain(4, {"gpu": 2.0}), cluster=one_device_per_server("gpu", "gpu"), job=job(4, schedule=schedule)
    )


def _heterogeneous_chain():
    """A device twice as fast gets 4 of 6 layers: both stages take 4 s, and (M + 1) x 4 = 20 as above.

    With n layers on the fast device the stages take n and 2 (6 - n) s. n <= 3: the slow one works
    4 x 6 = 24 s. n = 5: the fast one works 4 x 5 = 20 s. n = 6: 24 s.
    """
    return Problem(
        model=chain(6, {"fast": 1.0, "slow": 2.0}), cluster=one_device_per_server("slow", "fast"), job=job(4)
    )


def _slow_network():
    """A transfer takes 100 s; all three layers on one device take 4 x 3 x 2 = 24."""
    network = Link(bandwidth_bytes_per_s=1.0, latency_s=99.0)
    cluster = one_device_per_server("gpu", "gpu", network=network)
    return Problem(model=chain(3, {"gpu": 2.0}, output_bytes=1.0), cluster=cluster, job=job(4))


def _replicas():
    """One layer cannot be cut; two replicas take one sample each of every micro-batch: 3 x 2 = 6 s instead of 12."""
    return Problem(model=chain(1, {"gpu": 2.0}), cluster=one_server("gpu", 2), job=job(3, micro_batch=2))


def _all_reduce():
    """The problem above, but the ring moves 2 (2 - 1) / 2 x 4 bytes at 1 byte/s: 6 + 4 = 10, still below 12.

    fp16: 4 parameters of 2 bytes, 1 byte of gradient each.
    """
    optimizer = Optimizer(name="gradients", weight_bytes=0.0, gradient_bytes=1.0, state_bytes=0.0)
    return Problem(
        model=chain(1, {"gpu": 2.0}, params_bytes=8.0),
        cluster=one_server("gpu", 2, fabric=Link(bandwidth_bytes_per_s=1.0)),
        job=job(3, micro_batch=2, optimizer=optimizer),
    )


def _memory_forces_a_cut():
    """The fast device holds 2 of 4 layers (1 byte each); the slow one, 3 times slower, must take the others.

    So it works at least 2 x 6 = 12 s, and as the first stage of 2 + 2 no longer: its forwards end at
    3 and 6, the fast stage returns the gradients at 5 and 8, its backwards run 6 .. 9 and 9 .. 12.
    """
    types = kinds(fast=2.0, slow=INFINITE)
    servers = tuple(Server(name=name, islands=(Island(device_type=name, count=1),)) for name in ("fast", "slow"))
    return Problem(
        model=chain(4, {"fast": 1.0, "slow": 3.0}, params_bytes=2.0),
        cluster=Cluster(name="short", device_types=types, servers=servers),
        job=job(2, optimizer=WEIGHTS_ONLY),
    )


def _recompute_forced():
    """3 layers keep 3 x 4 bytes; recomputing keeps the 2 inner inputs of 1 byte and one layer's 4 on top: 6 fit.

    Recomputation adds F = 3 to F + B = 6 for each of 2 micro-batches: 18.
    """
    return Problem(
        model=chain(3, {"gpu": 2.0}, saved_bytes=4.0, output_bytes=1.0),
        cluster=one_device_per_server("gpu", memory_bytes=6.0),
        job=job(2, recompute=Recompute.AUTO),
    )


def _too_large():
    """Each layer alone needs 3 bytes, each device has 2."""
    return Problem(
        model=chain(2, {"gpu": 2.0}, params_bytes=6.0),
        cluster=one_device_per_server("gpu", "gpu", memory_bytes=2.0),
        job=job(2, optimizer=WEIGHTS_ONLY),
    )


def _tensor_parallelism():
    """A single layer and sample per micro-batch: two devices share the layer, 0.5 s forward and backward.

    The ring moves 2 (2 - 1) / 2 x 1 byte at 4 bytes/s in each direction: 3 x (2 x 0.5 + 2 x 0.25) = 4.5 s, not 6.
    """
    return Problem(
        model=chain(1, {"gpu": 2.0}, tensor_parallel_bytes=1.0),
        cluster=one_server("gpu", 2, fabric=Link(bandwidth_bytes_per_s=4.0)),
        job=job(3),
    )


def _pipelines():
    """Two pipelines of one device each run 2 of 4 micro-batches: 2 x 4 x 2 = 16 s; one of two stages takes 20."""
    return Problem(model=chain(4, {"gpu": 2.0}), cluster=_two_hosts(), job=job(4, pipelines=None))


def _synchronised_pipelines():
    """As above, gradients have 4 bytes: 2 (2 - 1) / 2 x 4 bytes at 2 bytes/s between the hosts: 16 + 2 = 18 s.

    In one pipeline of two stages nothing is synchronised, and 20 s remain.
    """
    optimizer = Optimizer(name="gradients", weight_bytes=0.0, gradient_bytes=1.0, state_bytes=0.0)
    return Problem(
        model=chain(4, {"gpu": 2.0}, params_bytes=2.0),
        cluster=_two_hosts(network=Link(bandwidth_bytes_per_s=2.0)),
        job=job(4, pipelines=None, optimizer=optimizer),
    )


def _two_hosts(**changes):
    server = Server(name="host", count=2, islands=(Island(device_type="gpu", count=1),))
    return Cluster(name="alike", device_types=kinds(gpu=INFINITE), servers=(server,), **changes)


def _divided_state():
    """One parameter of 1 byte with 4 bytes of state, devices of 3 bytes: two replicas hold half of the state each.

    3 micro-batches of 2 samples, one on each device: 3 x 2 = 6 s.
    """
    optimizer = Optimizer(name="state", weight_bytes=1.0, gradient_bytes=0.0, state_bytes=4.0)
    return Problem(
        model=chain(1, {"gpu": 2.0}, params_bytes=2.0),
        cluster=one_server("gpu", 2, memory_bytes=3.0),
        job=job(3, micro_batch=2, optimizer=optimizer, zero1=True),
    )


def _interleaved():
    """Two devices take turns on four stages of one layer, F = B = 1: 18 s, not the 20 of two stages.

    Each device works 4 x 2 x 2 = 16 s; the second begins no sooner than the first has done a forward, 1 s, and
    after its last backward one of the first is still to come, 1 s.
    """
    return Problem(
        model=chain(4, {"gpu": 2.0}), cluster=one_server("gpu", 2), job=job(4, schedule=Schedule.INTERLEAVED)
    )


INTERLEAVED = KnownOptimum(name="interleaved", problem=_interleaved(), optimum_s=18.0)
"""For the solvers that know the schedule."""
CATALOGUE = (
    KnownOptimum(name="single device", problem=_single_device(), optimum_s=24.0),
    *(
        KnownOptimum(name=f"two equal devices, {schedule}", problem=_two_equal_devices(schedule), optimum_s=20.0)
        for schedule in PLAIN_SCHEDULES
    ),
    KnownOptimum(name="heterogeneous chain", problem=_heterogeneous_chain(), optimum_s=20.0),
    KnownOptimum(name="slow network", problem=_slow_network(), optimum_s=24.0),
    KnownOptimum(name="replicas", problem=_replicas(), optimum_s=6.0),
    KnownOptimum(name="all-reduce", problem=_all_reduce(), optimum_s=10.0),
    KnownOptimum(name="memory forces a cut", problem=_memory_forces_a_cut(), optimum_s=12.0),
    KnownOptimum(name="recomputation forced", problem=_recompute_forced(), optimum_s=18.0),
    KnownOptimum(name="tensor parallelism", problem=_tensor_parallelism(), optimum_s=4.5),
    KnownOptimum(name="several pipelines", problem=_pipelines(), optimum_s=16.0),
    KnownOptimum(name="synchronised pipelines", problem=_synchronised_pipelines(), optimum_s=18.0),
    KnownOptimum(name="divided optimizer state", problem=_divided_state(), optimum_s=6.0),
    KnownOptimum(name="too large", problem=_too_large(), optimum_s=None),
)
