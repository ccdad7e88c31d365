"""A drawing of the cluster: every server with its islands and devices, and the stage on each device."""

from collections import defaultdict
from collections.abc import Sequence

from stagecut.planner.core.cluster import Cluster, Server
from stagecut.planner.core.plan import Pipeline
from stagecut.planner.core.virtual_workers.wave_plan import VirtualWorker
from stagecut.planner.report.labels import bytes_label, counted_label, link_label, stage_name
from stagecut.planner.report.page.html_text import text
from stagecut.planner.report.page.stage_colours import group_colours

Chips = dict[str, str]
"""The mark of each device that computes, by its name."""


def cluster_drawing(
    cluster: Cluster, pipelines: Sequence[Pipeline | VirtualWorker], *, chunks: int = 1, word: str = "pipeline"
) -> str:
    """Servers as boxes with islands inside, devices as marks in the colour and with the number of their stage.

    Each device group has `chunks` stages; `word` is what a pipeline is called.
    """
    chips = _chips(pipelines, chunks)
    classes = [_server_class(cluster, index, server, chips) for index, server in enumerate(cluster.servers)]
    unused = cluster.num_devices - len(chips)
    before = f"of its {word} and, after the colon, " if len(pipelines) > 1 else ""
    what = f"the number {before}of its stage"
    rest = f" {counted_label(unused, 'device')} without one stay idle." if unused else ""
    links = f"Between servers: {link_label(cluster.network)}."
    note = f'<p class="note">Each device shows {what}.{text(rest)} {text(links)}</p>'
    return f'{note}<div class="cluster">{"".join(classes)}</div>'


def _chips(pipelines: Sequence[Pipeline | VirtualWorker], chunks: int) -> Chips:
    stages_on: dict[str, list[str]] = defaultdict(list)
    colour_of: dict[str, tuple[str, str]] = {}
    for number, pipeline in enumerate(pipelines):
        colours = group_colours(len(pipeline.stages) // chunks)
        for index, stage in enumerate(pipeline.stages):
            for device in stage.devices:
                stages_on[device].append(stage_name(number, index, several=len(pipelines) > 1))
                colour_of[device] = colours[index % len(colours)]
    return {device: _chip(device, stages, *colour_of[device]) for device, stages in stages_on.items()}


def _chip(device: str, stages: list[str], colour: str, ink: str) -> str:
    shown = ",".join(stages)
    inside = f'<span aria-hidden="true">{shown}</span>'
    return _item(f"{device}: stage {shown}", f'style="background:{colour};color:{ink}"', inside)


def _server_class(cluster: Cluster, index: int, server: Server, chips: Chips) -> str:
    kinds = " + ".join(
        f"{island.count} x {island.device_type} "
        f"({bytes_label(cluster.device_type(island.device_type).memory_bytes)}, fabric {link_label(island.fabric)})"
        for island in server.islands
    )
    title = f"{server.count} x {server.name}: {kinds}, interface {link_label(server.nic)}"
    hosts = "".join(_host(name, server, chips) for name in cluster.host_names(index))
    return f'<div><h3>{text(title)}</h3><div class="hosts">{hosts}</div></div>\n'


def _host(name: str, server: Server, chips: Chips) -> str:
    islands, slot = [], 0
    for island in server.islands:
        names = [f"{name}/{slot + index}" for index in range(island.count)]
        islands.append(f'<ul class="island">{"".join(chips.get(each) or _idle(each) for each in names)}</ul>')
        slot += island.count
    return f'<div class="host"><div class="host-name">{text(name)}</div>{"".join(islands)}</div>'


def _idle(device: str) -> str:
    return _item(f"{device}: no stage", 'class="idle"', "")


def _item(said: str, attributes: str, inside: str) -> str:
    return f'<li {attributes} title="{text(said)}"><span class="hidden">{text(said)}</span>{inside}</li>'
