"""GPT decoders.

Dense decoders with learned positions `p`, feed-forward width `4 h` and dropout: token embedding
`(v + p) h`, blocks of `12 h^2 + 13 h` parameters, token head tied to the embedding. GPT-2 and GPT-3 have
a final LayerNorm, GPT-1 has none. GPT-3's alternating sparse attention is counted as dense. `gpt-mini` has no
dropout and trains on a CPU.
"""

from dataclasses import dataclass
from functools import partial

from stagecut.models.families.chain import Chain
from stagecut.models.families.entry import ModelEntry
from stagecut.models.families.token_ends import token_embedding, token_head
from stagecut.models.families.transformer import Residual, dense_blocks


@dataclass(frozen=True, slots=True, kw_only=True)
class GptShape:
    """Widths and counts of a GPT."""

    blocks: int
    hidden: int
    heads: int
    vocabulary: int = 50257
    positions: int = 1024
    final_norm: bool = True
    dropout: float = 0.1
    """Probability; 0: no masks are saved."""


def gpt(shape: GptShape, tokens: int) -> Chain:
    """The layer chain of a GPT."""
    residual = Residual(tokens=tokens, hidden=shape.hidden, dropout=shape.dropout > 0)
    embedding = token_embedding(residual, vocabulary=shape.vocabulary, positions=shape.positions)
    blocks = dense_blocks(shape.blocks, residual, heads=shape.heads, width=4 * shape.hidden)
    head = token_head(residual, vocabulary=shape.vocabulary, tied=True, normed=shape.final_norm)
    return Chain(layers=(embedding, *blocks, head))


def _entry(name: str, shape: GptShape, *, published_params: float | None, source: str) -> ModelEntry:
    return ModelEntry(
        name=name,
        summary=f"decoder, {shape.blocks} blocks, hidden {shape.hidden}, {shape.heads} heads, tied head",
        source=source,
        chain=partial(gpt, shape),
        shape=shape,
        published_params=published_params,
        default_sequence=shape.positions,
        max_sequence=shape.positions,
    )


ENTRIES = (
    _entry(
        "gpt1-14",
        GptShape(blocks=14, hidden=768, heads=12, vocabulary=40478, positions=512, final_norm=False),
        published_params=None,
        source="Radford et al. 2018, with 14 blocks instead of 12 (12 blocks: 116.5 M, published as 117 M)",
    ),
    _entry(
        "gpt2-345m",
        GptShape(blocks=24, hidden=1024, heads=16),
        published_params=355e6,
        source="Radford et al. 2019; the paper says 345 M, the release of the weights corrects it to 355 M",
    ),
    _entry(
        "gpt2-762m",
        GptShape(blocks=36, hidden=1280, heads=20),
        published_params=774e6,
        source="Radford et al. 2019; the paper says 762 M, the release of the weights corrects it to 774 M",
    ),
    _entry(
        "gpt2-1.3b",
        GptShape(blocks=24, hidden=2048, heads=16),
        published_params=1_315_758_080,
        source="24 blocks of hidden 2048 with GPT-2's vocabulary; published count of OPT-1.3B, the same widths",
    ),
    _entry(
        "gpt2-xl",
        GptShape(blocks=48, hidden=1600, heads=25),
        published_params=1558e6,
        source="Radford et al. 2019; the release of the weights says 1558 M",
    ),
    _entry(
        "gpt3-175b",
        GptShape(blocks=96, hidden=12288, heads=96, positions=2048),
        published_params=175e9,
        source="Brown et al. 2020, table 2.1",
    ),
    _entry(
        "gpt-mini",
        GptShape(blocks=6, hidden=192, heads=6, vocabulary=4096, positions=256, dropout=0.0),
        published_params=None,
        source="a small GPT-2 without dropout",
    ),
)
