"""The contest's instances: what others found, and within which time."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """Best answers known from the contest (github.com/google/iopddl, README.md)."""

    time_limit_s: float
    best_team: int
    """Best of 20 teams on 8 cores within the time limit."""
    xla: int | None
    """XLA's own solver; None where it has no answer."""

    @property
    def best(self) -> int:
        """The better of the two."""
        return self.best_team if self.xla is None else min(self.best_team, self.xla)


PUBLISHED = {
    "A": Published(time_limit_s=60, best_team=6_548_641_531, xla=13_214_846_074),
    "B": Published(time_limit_s=60, best_team=532_843, xla=990_205),
    "G": Published(time_limit_s=120, best_team=217_039, xla=1_264_777),
    "M": Published(time_limit_s=180, best_team=49_928_460_991, xla=None),
    "P": Published(time_limit_s=240, best_team=662_197_407_330, xla=651_833_115_436),
    "S": Published(time_limit_s=240, best_team=1_534_613_444, xla=None),
}
LIMIT_S = 120.0
"""For instances without published figures."""


def name_of(path: Path) -> str:
    """The letter of an instance of the contest, else the name of the file."""
    stem = path.name.removesuffix(".gz").removesuffix(".json")
    return stem.removeprefix("asplos-2025-iopddl-")


def instances(folder: Path, only: tuple[str, ...] = ()) -> dict[str, Path]:
    """Graphs of a folder by name, smallest file first."""
    paths = sorted((*folder.glob("*.json"), *folder.glob("*.json.gz")), key=lambda path: path.stat().st_size)
    return {name_of(path): path for path in paths if not only or name_of(path) in only}
