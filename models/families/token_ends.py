"""First and last layer of models on tokens.

With `s` tokens, hidden width `h` and vocabulary `v`:

**Token embedding**: the token matrix `v h`, and learned positions if there are any. No FLOPs. Saved: the
token ids, `8 s` bytes; with dropout a mask of `s h` bytes. Working: the gradient of its output, `s h`.

**Token head**: final norm if there is one, product with the token matrix, cross entropy in fp32.

- parameters: the norm, and `v h`; if the matrix is **tied** to the embedding's, it is held but not counted again
- forward FLOPs: `2 s h v`, over all positions
- saved: the input and the normed input, `2 s h` elements (`s h` without a norm), log-probabilities
  `4 s v` bytes, labels `8 s` bytes
- working: the logits or their gradient in the training precision, `s v` elements, and once more in fp32, `4 s v`
  bytes; the gradient of the normed input, `s h`
"""

from stagecut.models.families.chain import FP32_BYTES, INDEX_BYTES, LayerCounts, layer_of
from stagecut.models.families.operators import (
    STATE,
    VOCABULARY,
    OperatorCounts,
    TensorCounts,
    WeightCounts,
    elementwise,
    linear,
    splits,
    vocabulary_dim,
)
from stagecut.models.families.transformer import Residual, mask, norm
from stagecut.planner.core.operators.operators import HIDDEN, INPUT, OUTPUT, SAMPLE, SUM, TOKEN, Port

POSITION = "position"


def token_embedding(residual: Residual, *, vocabulary: int, positions: int = 0) -> LayerCounts:
    """Token embedding, with learned positions if there are any."""
    places = (_add_positions(residual, positions),) if positions else ()
    tokens = lookup(residual, vocabulary, made="embedded" if places else OUTPUT)
    return embedding_layer(residual, (tokens, *places), ids=1)


def embedding_layer(residual: Residual, operators: tuple[OperatorCounts, ...], *, ids: int) -> LayerCounts:
    """The layer of these operators, with so many ids for each token."""
    tokens, hidden = residual.tokens, residual.hidden
    return layer_of(
        "embedding",
        operators,
        kind="embedding",
        saved_input_fixed_bytes=ids * INDEX_BYTES * tokens,
        all_reduced=tokens * hidden / 2,
    )


def lookup(residual: Residual, vocabulary: int, *, made: str) -> OperatorCounts:
    """Rows of the token matrix; along the vocabulary it is a sum."""
    elements = residual.tokens * residual.hidden
    return OperatorCounts(
        name="tokens",
        kind="embedding",
        inputs=(Port(tensor=INPUT, dims=(SAMPLE, TOKEN)),),
        outputs=(TensorCounts(name=made, dims=STATE, elements=elements),),
        weights=(WeightCounts(name="weight", dims=(VOCABULARY, HIDDEN), elements=vocabulary * residual.hidden),),
        splits=splits(residual.token, vocabulary_dim(vocabulary), residual.wide),
        working=elements if made == OUTPUT else 0,
    )


def _add_positions(residual: Residual, positions: int) -> OperatorCounts:
    elements = residual.tokens * residual.hidden
    return elementwise(
        "positions",
        ("embedded",),
        TensorCounts(name=OUTPUT, dims=STATE, elements=elements),
        *((mask(residual.token, residual.wide),) if residual.dropout else ()),
        over=(residual.token,),
        whole=(HIDDEN,),
        kind=SUM,
        weights=(WeightCounts(name="weight", dims=(POSITION, HIDDEN), elements=positions * residual.hidden),),
        working=elements,
    )


def token_head(
    residual: Residual, *, vocabulary: int, tied: bool, normed: bool = True, biased: bool = False
) -> LayerCounts:
    """Token head; the last layer, so its output has no bytes."""
    first = (final_norm(residual, INPUT),) if normed else ()
    product = logits(residual, "normed" if normed else INPUT, vocabulary=vocabulary, tied=tied, biased=biased)
    return head_layer(residual, (*first, product, token_loss(residual, vocabulary=vocabulary)))


def head_layer(residual: Residual, operators: tuple[OperatorCounts, ...]) -> LayerCounts:
    """The layer of these operators."""
    elements = residual.tokens * residual.hidden
    return layer_of("head", operators, kind="head", saved_input=elements, all_reduced=elements / 2)


def final_norm(residual: Residual, taken: str) -> OperatorCounts:
    """The norm before the logits, which saves its result."""
    made = TensorCounts(name="normed", dims=STATE, elements=residual.tokens * residual.hidden, saved=True)
    return norm(taken, made, wide=residual.wide, over=(residual.token,), biased=residual.biased)


def logits(residual: Residual, taken: str, *, vocabulary: int, tied: bool, biased: bool) -> OperatorCounts:
    """The product with the token matrix; while it runs it holds the gradients of both sides."""
    return linear(
        "project",
        taken,
        made={"logits": vocabulary},
        over=(residual.token,),
        given=residual.wide,
        out=vocabulary_dim(vocabulary),
        biased=biased,
        shared=tied,
        working=residual.tokens * (residual.hidden + vocabulary),
    )


def token_loss(residual: Residual, *, vocabulary: int, others: tuple[Port, ...] = ()) -> OperatorCounts:
    """Cross entropy in fp32: a sum over tokens and vocabulary, the partial sums of which are not counted."""
    tokens, dims = residual.tokens, (SAMPLE, TOKEN, VOCABULARY)
    precise = FP32_BYTES * tokens * vocabulary
    return OperatorCounts(
        name="loss",
        kind="loss",
        inputs=(Port(tensor="logits", dims=dims), *others),
        outputs=(
            TensorCounts(name=OUTPUT, dims=(SAMPLE,)),
            TensorCounts(name="log-probabilities", dims=dims, fixed_bytes=precise, saved=True),
            TensorCounts(name="labels", dims=(SAMPLE, TOKEN), fixed_bytes=INDEX_BYTES * tokens, saved=True),
        ),
        splits=splits(residual.token, vocabulary_dim(vocabulary)),
        working_fixed_bytes=precise,
    )
