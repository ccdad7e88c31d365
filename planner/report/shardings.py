"""Shardings of a whole model as tables and as a tree."""

from rich.table import Table

from stagecut.planner.core.layer_graphs.layer_operators import operators_of
from stagecut.planner.core.operators.strategy import LayerStrategy
from stagecut.planner.core.result import Status
from stagecut.planner.core.units import format_seconds
from stagecut.planner.io.documents.canonical import TreeValue
from stagecut.planner.report.labels import UNKNOWN, bytes_label, counted_label, percent_label
from stagecut.planner.report.text_table import text_table
from stagecut.planner.report.verdict import ENDS, quality
from stagecut.planner.sharding.words import layer_words
from stagecut.planner.sharding_search.scheme_result import Scheme, SchemeResult
from stagecut.planner.sharding_search.sharding_costs import least_sent_bytes, states_of

TOO_MUCH = "too much"


def mesh_label(sizes: tuple[int, ...]) -> str:
    """Sizes of the axes, for example `2x4`."""
    return "x".join(map(str, sizes)) or "1"


def scheme_table(result: SchemeResult) -> Table:
    """One row per scheme, the fastest that fits first."""
    fastest_s = result.best.costs.iteration_s if result.best else None
    return text_table(
        (_scheme_cells(scheme, fastest_s) for scheme in result.schemes),
        "scheme",
        "mesh",
        right=("time", "over best", "sent per device", "over least", "memory", "limit"),
        last=("",),
    )


def _scheme_cells(scheme: Scheme, fastest_s: float | None) -> list[str]:
    costs, least_bytes = scheme.costs, least_sent_bytes(scheme.case)
    return [
        scheme.name,
        mesh_label(scheme.case.mesh.sizes),
        format_seconds(costs.iteration_s),
        UNKNOWN if fastest_s is None else percent_label(costs.iteration_s / fastest_s - 1),
        bytes_label(costs.sent_bytes),
        f"{costs.sent_bytes / least_bytes:.2f}x" if least_bytes else UNKNOWN,
        bytes_label(costs.memory_bytes),
        bytes_label(scheme.case.device.memory_bytes),
        "" if scheme.fits else TOO_MUCH,
    ]


def layer_table(scheme: Scheme) -> Table:
    """The layers of a scheme in words, runs of layers with equal words together."""
    model, runs = scheme.case.model, list[tuple[int, int, str]]()
    for number, words in enumerate(_words(scheme)):
        if runs and runs[-1][2] == words:
            runs[-1] = (runs[-1][0], number + 1, words)
        else:
            runs.append((number, number + 1, words))
    names = [layer.name for layer in model.layers]
    return text_table(
        (
            [names[start] if stop - start == 1 else f"{names[start]} .. {names[stop - 1]}", words]
            for start, stop, words in runs
        ),
        "layers",
        "strategy",
    )


def memory_sentence(scheme: Scheme) -> str:
    """What the memory of a device holds at the peak."""
    own = scheme.costs
    parts = {
        "weights": own.weight_bytes,
        "gradients": own.gradient_bytes,
        "optimizer": own.optimizer_bytes,
        "activations": own.saved_bytes,
        "working memory": own.working_bytes,
    }
    return "memory: " + ", ".join(f"{name} {bytes_label(size)}" for name, size in parts.items())


def sharding_sentence(result: SchemeResult) -> str:
    """What a search found and what it proved."""
    head = "interrupted: " if result.status is Status.INTERRUPTED else ""
    end = ENDS[result.stopped_by]
    if result.best is None:
        if result.status is Status.INFEASIBLE:
            return f"infeasible: {result.overflow}"
        return f"{head}no sharding found that fits{end}, and no proof that there is none"
    case, costs = result.best.case, result.best.costs
    batches = f"{counted_label(case.num_microbatches, 'micro-batch')} of {counted_label(case.micro_batch, 'sample')}"
    bound = "" if result.bound_s is None else f" (bound {format_seconds(result.bound_s)})"
    return (
        f"{head}{result.best.name} on {mesh_label(case.mesh.sizes)}: {format_seconds(costs.iteration_s)} per iteration "
        f"of {batches}, {quality(result)}{bound}{end}"
    ).replace("micro-batchs", "micro-batches")


def sharding_tree(result: SchemeResult) -> dict[str, TreeValue]:
    """The answer as plain values; the layers of the best scheme only."""
    best = result.best
    return {
        "status": str(result.status),
        "stopped_by": None if result.stopped_by is None else str(result.stopped_by),
        "seconds": result.seconds,
        "bound_s": result.bound_s,
        "gap": result.gap,
        "reason": result.overflow,
        "fault": None if result.fault is None else result.fault.reason,
        "least_sent_bytes": least_sent_bytes(result.schemes[0].case) if result.schemes else None,
        "schemes": [_scheme_tree(scheme) for scheme in result.schemes],
        "layers": None if best is None else _layer_trees(best),
    }


def _scheme_tree(scheme: Scheme) -> dict[str, TreeValue]:
    case, own = scheme.case, scheme.costs
    return {
        "scheme": scheme.name,
        "mesh": list(case.mesh.sizes),
        "micro_batch": case.micro_batch,
        "num_microbatches": case.num_microbatches,
        "fits": scheme.fits,
        "iteration_s": own.iteration_s,
        "compute_s": own.compute_s,
        "collectives_s": own.collectives_s,
        "sync_s": own.sync_s,
        "update_s": own.update_s,
        "sent_bytes": own.sent_bytes,
        "memory_bytes": own.memory_bytes,
        "weight_bytes": own.weight_bytes,
        "gradient_bytes": own.gradient_bytes,
        "optimizer_bytes": own.optimizer_bytes,
        "saved_bytes": own.saved_bytes,
        "working_bytes": own.working_bytes,
    }


def _layer_trees(scheme: Scheme) -> list[TreeValue]:
    model, sharding = scheme.case.model, scheme.sharding
    inputs = [None, *([str(own) for own in state] for state in states_of(model, sharding)[:-1])]
    return [
        {
            "name": layer.name,
            "words": words,
            "input": state,
            "operators": [
                {"name": operator.name, "splits": list(strategy.splits), "storage": str(strategy.storage)}
                for operator, strategy in zip(operators_of(layer), own.operators, strict=True)
            ],
        }
        for layer, own, state, words in zip(model.layers, sharding.layers, inputs, _words(scheme), strict=True)
    ]


def _words(scheme: Scheme) -> list[str]:
    def words(number: int, own: LayerStrategy) -> str:
        return layer_words(operators_of(scheme.case.model.layers[number]), own, scheme.case.mesh.sizes)

    return [words(number, own) for number, own in enumerate(scheme.sharding.layers)]
