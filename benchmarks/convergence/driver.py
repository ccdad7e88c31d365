"""Time to a target accuracy or loss of synchronous and wave-synchronous training, and regret in the convex case.

    python -m benchmarks.convergence

with the options of `benchmarks/harness/driver.py`; `--docs` puts tables and pictures into docs/waves.md. Training is
real: the executor's own code, weight versions, servers and staleness, on small models and data sets. Time is that of
the simulator, for a large model on half of HetPipe's cluster: see `benchmarks/convergence/replay.py`.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

from benchmarks.convergence import methods, regret
from benchmarks.convergence.methods import DIGITS, TEXT, Comparison, Maker
from benchmarks.convergence.pictures import pictures
from benchmarks.convergence.tables import tables
from benchmarks.harness.driver import Driver, Jobs, Parts, Request
from benchmarks.harness.measuring import Tree

Job = Callable[[Request], Tree]


def jobs() -> Jobs:
    """One part for each task and way to train it, and for each setting of the convex case."""
    found: dict[str, Job] = {}
    for comparison in (DIGITS, TEXT):
        found |= _of(comparison, methods.methods(comparison.work))
    found |= {f"regret, N_m = {in_flight}, D = {d}": partial(_regret, in_flight, d) for in_flight, d in regret.SETTINGS}
    return found | _of(replace(DIGITS, seeds=DIGITS.seeds[:1]), methods.sweep(DIGITS.work))


def quick_jobs() -> Jobs:
    """A few minibatches of some of them."""
    tiny = replace(DIGITS, num_samples=192, rates=(0.1,), wave_rates=(0.01,), seeds=(0,))
    makers = methods.methods(DIGITS.work)
    chosen = {name: makers[name] for name in (methods.DATA_PARALLEL, "unlike pipelines", "waves, D = 4")}
    return {**_of(tiny, chosen), "regret, N_m = 4, D = 32": partial(_regret, 4, 32, minibatches=320)}


def complaint(parts: Parts) -> str:
    """Trainings whose minibatches saw older weights than allowed."""
    kinds = ("local_staleness", "global_staleness")
    late = [name for name, part in parts.items() for kind in kinds if part[kind][0] > part[kind][1]]
    return f"weights are older than the bound: {', '.join(late)}" if late else ""


def _of(comparison: Comparison, makers: Mapping[str, Maker]) -> dict[str, Job]:
    return {f"{comparison.title}: {name}": partial(_measure, comparison, maker) for name, maker in makers.items()}


def _measure(comparison: Comparison, maker: Maker, _: Request) -> Tree:
    return methods.measure(comparison, maker)


def _regret(in_flight: int, distance: int, _: Request, *, minibatches: int = regret.MINIBATCHES) -> Tree:
    return regret.measure(in_flight, distance, minibatches=minibatches)


DRIVER = Driver(
    name="convergence",
    jobs=jobs(),
    quick_jobs=quick_jobs(),
    tables=tables,
    pictures=pictures,
    complaint=complaint,
)
