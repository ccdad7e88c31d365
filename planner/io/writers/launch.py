"""How to start a plan: one torchrun for each host, with a page that says so."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from stagecut.planner.core.messages.visible import visible
from stagecut.planner.io.writers.ranks import HostRanks, RankedDevices
from stagecut.planner.io.writers.uniform_plan import UniformPlan

README = "README.md"


@dataclass(frozen=True, slots=True, kw_only=True)
class Export:
    """Files for a framework: texts by name."""

    framework: str
    """Its name, with the versions that were read."""
    command: str
    """Script and arguments that every rank runs."""
    files: Mapping[str, str]
    meanings: Mapping[str, str]
    """What each file is for."""
    notes: Sequence[str] = ()
    environment: Mapping[str, str] | None = None


def folder_files(uniform: UniformPlan, export: Export) -> dict[str, str]:
    """All files of a folder, with a README that has the command of each host."""
    return {**export.files, README: _readme(uniform, export)}


def launch_lines(ranked_devices: RankedDevices, command: str, *, environment: Mapping[str, str]) -> Iterator[str]:
    """A comment and a line for each host, in the order of ranks, with its devices in that order."""
    hosts = ranked_devices.hosts
    for index, host in enumerate(hosts):
        devices = {"CUDA_VISIBLE_DEVICES": ",".join(map(str, host.slots)), **environment}
        settings = " ".join(f"{name}={value}" for name, value in devices.items())
        nodes = f"--nnodes {len(hosts)} --node-rank {index} --nproc-per-node {len(host.slots)}"
        yield f"# on {visible(host.name)}: {_ranks(host)}"
        yield f'{settings} torchrun {nodes} --master-addr "$MASTER" --master-port 29500 {command}'


def _ranks(host: HostRanks) -> str:
    last = host.first_rank + len(host.slots) - 1
    return f"rank {last}" if last == host.first_rank else f"ranks {host.first_rank} to {last}"


def _readme(uniform: UniformPlan, export: Export) -> str:
    first = visible(uniform.ranked_devices.hosts[0].name)
    lines = [
        f"# {visible(uniform.problem.model.name)} on {visible(uniform.problem.cluster.name)}",
        "",
        f"A plan for {export.framework}.",
        "",
        *(f"- `{name}`: {export.meanings[name]}" for name in export.files),
        "",
        f"Set `MASTER` to the address of `{first}` and run in this folder, on each host:",
        "",
        "```sh",
        *launch_lines(uniform.ranked_devices, export.command, environment=export.environment or {}),
        "```",
        "",
        *(f"- {note}" for note in export.notes),
    ]
    return "\n".join(lines).rstrip() + "\n"
