"""Curves over simulated time, and regret over minibatches."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from benchmarks.convergence.methods import DIGITS, TEXT, Comparison, methods
from benchmarks.harness.driver import Parts

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = ("#000000", "#0072B2", "#56B4E9", "#D55E00", "#E69F00", "#CC79A7")
"""Of Okabe and Ito (jfly.uni-koeln.de/color)."""
STYLES = ("-", "--", ":")


def pictures(parts: Parts) -> "Mapping[str, Figure]":
    """Figures by file name."""
    return {"convergence": draw_curves(parts), "regret": draw_regrets(parts)}


def draw_curves(parts: Parts) -> "Figure":
    """A panel for each task, a curve for each way to train it."""
    figure, panels = _figure(2)
    for axes, comparison in zip(panels, (DIGITS, TEXT), strict=True):
        _draw(axes, comparison, parts)
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, fontsize="small", frameon=False)
    return figure


def _draw(axes: "Axes", comparison: Comparison, parts: Parts) -> None:
    for name, colour in zip(methods(comparison.work), COLOURS, strict=True):
        part = parts.get(f"{comparison.title}: {name}")
        if part is not None:
            curve = part["curve"]
            style = "-" if name.startswith("waves") else "--"
            axes.plot(curve["seconds"], curve["values"], style, color=colour, linewidth=1.2, label=name)
    axes.axhline(comparison.target, color="grey", linewidth=0.8, linestyle=":")
    axes.set_xlabel("simulated seconds")
    axes.set_ylabel(f"{comparison.title}: {comparison.unit}")


def draw_regrets(parts: Parts) -> "Figure":
    """Average regret over minibatches, and the slope of 1 / sqrt(T)."""
    figure, (axes,) = _figure(1)
    found = {name: part for name, part in parts.items() if name.startswith("regret")}
    for index, (name, part) in enumerate(found.items()):
        style, colour = STYLES[index // 3 % 3], COLOURS[1:4][index % 3]
        axes.plot(part["counts"], part["regrets"], style, color=colour, label=name.removeprefix("regret, "))
    counts = sorted({count for part in found.values() for count in part["counts"]})
    axes.plot(counts, [4 / count**0.5 for count in counts], color="grey", linewidth=0.8, label="4 / sqrt(T)")
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xlabel("minibatches T of all workers")
    axes.set_ylabel("average regret")
    axes.legend(frameon=False, fontsize="small")
    return figure


def _figure(num_panels: int) -> "tuple[Figure, list[Axes]]":
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.0, 4.0), layout="constrained")
    panels = [figure.add_subplot(1, num_panels, index + 1) for index in range(num_panels)]
    for axes in panels:
        axes.grid(axis="y", color="#EEEEEE")
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
    return figure, panels
