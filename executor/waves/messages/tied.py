"""Weights that several layers of a model share."""

from dataclasses import dataclass

from stagecut.executor.waves.setting.execution import WaveExecution
from stagecut.executor.waves.setting.layout import Member


@dataclass(frozen=True, slots=True, kw_only=True)
class Tied:
    """Copies of one weight in a worker."""

    stages: tuple[int, ...]
    """Those that hold one, ascending."""
    names: tuple[str, ...]
    """The copies of this stage, by global name."""


def tied_of(execution: WaveExecution, member: Member) -> tuple[Tied, ...]:
    """The tied weights of a stage, in the chain's order."""
    chain, worker = execution.chain, execution.plan.workers[member[0]]
    places: dict[tuple[int, str], list[tuple[int, str]]] = {}
    for tie in chain.ties:
        places.setdefault(tie.owner, [tie.owner]).append(tie.copy)
    found = []
    for copies in places.values():
        holding = {
            place: next(i for i, stage in enumerate(worker.stages) if stage.start <= place[0] < stage.stop)
            for place in copies
        }
        names = [f"{chain.layers[layer].name}.{own}" for (layer, own), stage in holding.items() if stage == member[1]]
        found.append(Tied(stages=tuple(sorted(set(holding.values()))), names=tuple(names)))
    return tuple(found)
