"""One model of the catalogue."""

from collections.abc import Callable
from dataclasses import dataclass

from stagecut.models.families.chain import Chain
from stagecut.planner.core.messages.checks import require
from stagecut.planner.core.model import ModelProfile
from stagecut.planner.core.precision import Precision


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelEntry:
    """How to build a model, and what was published about it."""

    name: str
    summary: str
    source: str
    """Where the architecture and the published number of parameters come from."""
    chain: Callable[[int], Chain]
    """Layers for so many tokens per sample; the number is ignored by models without tokens."""
    shape: object
    """Its family's shape, from which `stagecut.models.modules` builds the torch layers."""
    published_params: float | None = None
    default_sequence: int | None = None
    """Tokens per sample; None for a model without sequences."""
    max_sequence: int | None = None
    """Number of learned positions; None if the architecture sets no limit."""

    def profile(self, *, precision: Precision, sequence_length: int | None) -> ModelProfile:
        """The model in bytes.

        Raises
        ------
        BadInputError
            If the model does not support the sequence length.
        """
        tokens = self.num_tokens(sequence_length)
        return self.chain(tokens or 0).in_precision(precision, name=self.name, sequence_length=tokens)

    def num_tokens(self, sequence_length: int | None) -> int | None:
        """Tokens per sample; None means the model's default.

        Raises
        ------
        BadInputError
            If the model does not support the sequence length.
        """
        if sequence_length is None:
            return self.default_sequence
        owner = f"model {self.name!r}"
        require(
            self.default_sequence is not None,
            owner,
            "sequence_length",
            "omitted: it has none",
            sequence_length,
        )
        require(sequence_length >= 1, owner, "sequence_length", "at least 1", sequence_length)
        limit = self.max_sequence or sequence_length
        rule = f"at most {limit}, its number of learned positions"
        require(sequence_length <= limit, owner, "sequence_length", rule, sequence_length)
        return sequence_length
