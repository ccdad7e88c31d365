"""The manifest of a checkpoint, and whether a model can be restored from it."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

from stagecut.executor.checkpoint.checksums import FileSum
from stagecut.executor.checkpoint.folder import MANIFEST
from stagecut.planner.core.messages.errors import BadInputError
from stagecut.planner.io.documents.canonical import Tree, format_json, sha256_of

SCHEMA = 2
WITHOUT_CHECKSUMS = 1
"""An older version that can still be read."""
Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """What a checkpoint contains."""

    model: str
    layers: tuple[str, ...]
    """In model order."""
    shapes: dict[str, Shape]
    """Shapes of whole parameters and buffers, by global name, in layer order."""
    optimizer: str
    num_steps: int
    plan_hash: str | None
    """SHA-256 of the plan file's tree; None if the plan was not loaded from a file."""
    versions: dict[str, str]
    waves_of: str | None = None
    """SHA-256 of the plan of virtual workers that wrote it, the only one whose ranks go on exactly; None for others."""
    files: Mapping[str, FileSum] | None = None
    """All other files of the checkpoint by name; None if it was written without checksums."""

    def text(self) -> str:
        """The manifest as it is written."""
        own = {name: value for name, value in asdict(self).items() if name != "waves_of" or value is not None}
        tree: Tree = {
            "schema": SCHEMA,
            **own,
            "layers": list(self.layers),
            "shapes": [[name, list(shape)] for name, shape in self.shapes.items()],
            "files": {name: {"bytes": size, "blake2b": digest} for name, (size, digest) in (self.files or {}).items()},
        }
        return format_json({**tree, "sha256": sha256_of(tree)})

    @classmethod
    def read(cls, place: Path) -> "Manifest":
        """The manifest of a checkpoint.

        Raises
        ------
        BadInputError
            If it is damaged, or of an unknown version.
        """
        path = place / MANIFEST
        try:
            tree = json.loads(path.read_text(encoding="utf-8"))
            if tree["schema"] not in (WITHOUT_CHECKSUMS, SCHEMA):
                raise BadInputError(
                    f"{path}: schema must be {WITHOUT_CHECKSUMS} or {SCHEMA}, got {tree['schema']!r}; "
                    "use the version that wrote it"
                )
            return cls(
                **{name: tree[name] for name in ("model", "optimizer", "num_steps", "plan_hash", "versions")},
                layers=tuple(tree["layers"]),
                shapes={name: tuple(shape) for name, shape in tree["shapes"]},
                waves_of=tree.get("waves_of"),
                files=None if tree["schema"] == WITHOUT_CHECKSUMS else _summed_files(tree),
            )
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as fault:
            reason = f"{type(fault).__name__}: {fault}"
            raise BadInputError(f"{path}: cannot be read ({reason}); restore another checkpoint") from None

    def check_fits(self, own: "Manifest", place: Path) -> None:
        """Refuse a checkpoint of another model or optimizer.

        Raises
        ------
        BadInputError
            Naming the first difference.
        """
        difference = next(self._differences(own), None)
        if difference is not None:
            names = f"model {self.model!r}" if self.model == own.model else f"model {self.model!r}, not {own.model!r}"
            raise BadInputError(
                f"{place}: is a checkpoint of {names}: {difference}; use the same model and optimizer, or a new folder"
            )

    def _differences(self, own: "Manifest") -> Iterator[str]:
        for index, (saved, here) in enumerate(zip_longest(self.layers, own.layers)):
            if saved != here:
                yield f"layer {index} is {_or_missing(saved)} there and {_or_missing(here)} here"
        for name in dict.fromkeys((*self.shapes, *own.shapes)):
            saved_shape, shape = self.shapes.get(name), own.shapes.get(name)
            if saved_shape != shape:
                yield f"{name!r} is {_shape_or_missing(saved_shape)} there and {_shape_or_missing(shape)} here"
        if self.optimizer != own.optimizer:
            yield f"the optimizer is {self.optimizer} there and {own.optimizer} here"


def _summed_files(tree: Any) -> dict[str, FileSum]:
    """The checksums, once the manifest itself has been verified."""
    if tree.get("sha256") != sha256_of({key: value for key, value in tree.items() if key != "sha256"}):
        raise ValueError("its content is not what was written")
    files = {name: FileSum(entry["bytes"], entry["blake2b"]) for name, entry in tree["files"].items()}
    if any(Path(name).name != name for name in files):
        raise ValueError("it names files outside the checkpoint")
    return files


def _or_missing(name: str | None) -> str:
    return "missing" if name is None else repr(name)


def _shape_or_missing(shape: Shape | None) -> str:
    return "missing" if shape is None else f"of shape {list(shape)}"
