"""Measurements as JSON beside the drivers: `results/NAME.json`, with versions and machine."""

import json
import os
import platform
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from stagecut.planner.io.documents.canonical import format_json
from stagecut.planner.io.documents.write import write_bytes
from stagecut.planner.io.files.plan_file import installed_versions

RESULTS = Path(__file__).parents[1] / "results"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stamp:
    """The circumstances of a measurement; only parts measured under the same ones are kept together."""

    versions: Mapping[str, str]
    machine: Mapping[str, Any]
    time_scale: float = 1.0
    """Multiplies every time limit of the specs."""

    @classmethod
    def here(cls, *, time_scale: float = 1.0) -> "Stamp":
        """The stamp of this machine and the installed versions."""
        return cls(versions=installed_versions(), machine=machine(), time_scale=time_scale)

    def tree(self) -> dict[str, Any]:
        """The stamp as it is written to a file."""
        return {"versions": dict(self.versions), "machine": dict(self.machine), "time_scale": self.time_scale}


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """Parts measured under one stamp."""

    stamp: Stamp
    parts: Mapping[str, dict[str, Any]]

    def with_part(self, name: str, tree: dict[str, Any]) -> "Kept":
        """These parts with one added or replaced."""
        return replace(self, parts={**self.parts, name: tree})


def keep_results(name: str, results: Mapping[str, object], *, folder: Path = RESULTS) -> None:
    """Write `NAME.json`, with the versions and the machine that gave the results."""
    folder.mkdir(parents=True, exist_ok=True)
    tree = {"versions": installed_versions(), "machine": machine(), **results}
    (folder / f"{name}.json").write_text(json.dumps(tree, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def keep_part(name: str, part: str, kept: Kept, *, expected: Iterable[str], folder: Path = RESULTS) -> None:
    """Add one part to `NAME.json`.

    What is there under another stamp is left out, and so are parts that are not expected any more.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.json"
    there = _read(path)
    parts = {**(there["parts"] if _is_under(there, kept.stamp) else {}), part: kept.parts[part]}
    ordered = {key: parts[key] for key in expected if key in parts}
    write_bytes(path, format_json({**kept.stamp.tree(), "parts": ordered}).encode(), force=True)


def check_stamp(name: str, stamp: Stamp, *, folder: Path = RESULTS) -> None:
    """Stop before mixing parts from different machines or versions.

    Raises
    ------
    SystemExit
        If `NAME.json` has parts under another stamp.
    """
    there = _read(folder / f"{name}.json")
    if there.get("parts") and not _is_under(there, stamp):
        raise SystemExit(
            f"results/{name}.json was measured with other versions, on another machine or with another --time-scale; "
            "measure all parts, or use --solvers, which stores nothing"
        )


def read_kept(name: str, expected: Iterable[str], *, folder: Path = RESULTS) -> dict[str, dict[str, Any]]:
    """The parts of `NAME.json` in the expected order; missing ones are left out."""
    parts = _read(folder / f"{name}.json").get("parts", {})
    return {key: parts[key] for key in expected if key in parts}


def machine() -> dict[str, Any]:
    """What measured seconds depend on."""
    return {"processor": _processor(), "cores": os.cpu_count(), "system": f"{platform.system()} {platform.machine()}"}


def _processor() -> str:
    """The processor's name according to Linux; elsewhere, according to Python."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor())


def _is_under(there: Mapping[str, Any], stamp: Stamp) -> bool:
    return {key: there.get(key) for key in stamp.tree()} == stamp.tree()


def _read(path: Path) -> dict[str, Any]:
    if not path.exists():
        return {}
    tree: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return tree
