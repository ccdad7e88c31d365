"""Models of configuration files as entries like those of the catalogue."""

import difflib
import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from stagecut.models.configurations.types import READERS
from stagecut.models.configurations.values import Values
from stagecut.models.families.bert import BertShape, bert
from stagecut.models.families.decoder import decoder
from stagecut.models.families.entry import ModelEntry
from stagecut.planner.core.messages.errors import BadInputError
from stagecut.planner.core.precision import Precision

FILE = "config.json"
LONGEST_DEFAULT = 8192
"""Largest default for the tokens per sample; many files state a hundred thousand positions."""
LARGEST_FILE = 1_000_000
"""Bytes; configurations have thousands, profiles may have millions."""
MARKS = ("model_type", "architectures", "text_config")
"""Keys of configurations, none of which a profile has."""


def holds_configuration(folder: Path) -> bool:
    """Whether a folder holds a configuration file."""
    return (folder / FILE).is_file()


def is_configuration(argument: str) -> bool:
    """Whether this is a folder, or a JSON file with the keys of a configuration and no layers."""
    path = Path(argument)
    try:
        if path.is_dir():
            return True
        if path.suffix.lower() != ".json" or not path.is_file() or path.stat().st_size > LARGEST_FILE:
            return False
        tree = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(tree, dict) and "layers" not in tree and (path.name == FILE or any(key in tree for key in MARKS))


def configuration_entry(argument: str) -> ModelEntry:
    """The model of a configuration file, or of a folder that holds one.

    Raises
    ------
    BadInputError
        If there is no such file, or its type is not known or lacks a key.
    """
    path = _file(argument)
    values = _values(str(path), _tree(path))
    shape = READERS[values.model_type](values)
    positions = values.count_or("max_position_embeddings", 0) or LONGEST_DEFAULT
    learned = shape.positions or None
    return ModelEntry(
        name=_name(path),
        summary=f"{values.model_type} of {path}",
        source=str(path),
        chain=partial(bert, shape) if isinstance(shape, BertShape) else partial(decoder, shape),
        shape=shape,
        default_sequence=min(positions, LONGEST_DEFAULT),
        max_sequence=learned,
    )


def configured_precision(argument: str) -> Precision:
    """bf16 if the configuration says that its weights are in it, otherwise fp16 as in the catalogue."""
    tree = _tree(_file(argument))
    text = tree.get("text_config")
    stated = [own.get(key) for own in (text, tree) if isinstance(own, dict) for key in ("dtype", "torch_dtype")]
    return Precision.BF16 if "bfloat16" in stated else Precision.FP16


def _file(argument: str) -> Path:
    path = Path(argument)
    if not path.is_dir():
        return path
    if not holds_configuration(path):
        raise BadInputError(f"{path}: is a folder without {FILE}; name a configuration or a profile file")
    return path / FILE


def _tree(path: Path) -> Mapping[str, Any]:
    try:
        tree = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as fault:
        raise BadInputError(f"{path}: cannot be read as JSON: {fault}") from None
    if not isinstance(tree, dict):
        raise BadInputError(f"{path}: must be a JSON object, as transformers writes it")
    return tree


def _values(source: str, tree: Mapping[str, Any]) -> Values:
    """The keys of the language model, which may be inside those of a model of text and images."""
    text = tree.get("text_config")
    inner = text if isinstance(text, dict) and str(tree.get("model_type")) not in READERS else tree
    own = inner.get("model_type") or ("gemma3_text" if tree.get("model_type") == "gemma3" else None)
    if not isinstance(own, str) or own not in READERS:
        raise _unknown(source, own)
    return Values(source=source, model_type=own, stated=inner)


def _unknown(source: str, model_type: object) -> BadInputError:
    known = ", ".join(READERS)
    near = difflib.get_close_matches(str(model_type), READERS, n=1, cutoff=0.8)
    missing = "states no model_type" if model_type is None else f"the layers of model_type {model_type!r} are not known"
    hint = f" (did you mean {near[0]!r}?)" if near else ""
    return BadInputError(
        f"{source}: {missing}{hint}; known: {known}; for another model measure its layers with "
        "plan profile model --layers package.module:function, and give the profile it writes to --model"
    )


def _name(path: Path) -> str:
    """The folder's name where the file is called as usual, otherwise the file's."""
    named = path.resolve().parent.name if path.name == FILE else path.stem
    return "".join(letter for letter in named if letter.isprintable())[:100] or "model"
