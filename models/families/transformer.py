"""Transformer parts.

With `s` tokens, hidden width `h`, `a` heads, key and value width `k` (`k = h` without grouped
queries), feed-forward width `f`, vocabulary `v`:

**Attention part**: norm, queries, keys, values, attention, projection, residual sum.

- parameters: `2 h^2 + 2 h k`, with biases `+ 2 h + 2 k`; norm: `2 h` (LayerNorm) or `h` (RMSNorm)
- forward FLOPs: `2 s (2 h^2 + 2 h k) + 4 s^2 h`; a causal mask does not lower the count
  (as in Narayanan et al., SC 2021)
- saved: the part's input, the normed input, queries and attention output, `4 s h` elements; keys and
  values, `2 s k`; with dropout a mask of `s h` bytes; softmax statistics, `4 a s` bytes.
  Attention is **fused** (Dao et al., NeurIPS 2022): no `s x s` matrix is saved, which removes the
  term `5 a s^2` of Korthikanti et al., MLSys 2023 ("Reducing Activation Recomputation in Large
  Transformer Models")
- working: gradients of the output, the attention output, queries, keys, values: `s (3 h + 2 k)`

**Feed-forward part**: norm, two linear layers with GeLU in between, residual sum.

- parameters: `2 h f + f + h`, norm `2 h`
- forward FLOPs: `4 s h f`
- saved: the part's input and the normed input, `2 s h`; the input and the output of GeLU, `2 s f`;
  with dropout a mask of `s h` bytes
- working: gradients of the output and of both sides of GeLU: `s (h + 2 f)`

In fp16 with dropout and `f = 4 h` the two parts save `34 s h` bytes, which is what Korthikanti et al. count
without their `5 a s^2`. Pre-norm (GPT-2) and post-norm (BERT) save the same.

**Token embedding**: the token matrix `v h`, and learned positions if there are any. No FLOPs. Saved: the
token ids, `8 s` bytes; with dropout a mask of `s h` bytes. Working: the gradient of its output, `s h`.

**Token head**: final norm if there is one, product with the token matrix, cross entropy in fp32.

- parameters: the norm, and `v h`; if the matrix is **tied** to the embedding's, it is held but not counted again
- forward FLOPs: `2 s h v`, over all positions
- saved: the input and the normed input, `2 s h` elements (`s h` without a norm), log-probabilities
  `4 s v` bytes, labels `8 s` bytes
- working: the logits or their gradient in the training precision, `s v` elements, and once more in fp32, `4 s v`
  bytes; the gradient of the normed input, `s h`

**Tensor parallelism**: `n` devices shard a part by heads, by columns and rows of the two linear layers, or by tokens
of the vocabulary (Shoeybi et al., arXiv 1909.08053). Attention and feed-forward part then all-reduce their output,
`s h` elements, in the forward, and as much for the gradient of their input in the backward. With sequence parallelism
(Korthikanti et al., MLSys 2023) norms, dropout and residual sums are sharded along the tokens, so that each device
holds `1 / n` of everything saved; the all-reduce becomes a reduce-scatter after the part and an all-gather before it,
of the same volume. Embedding and head need one of the two in each direction, which is half an all-reduce: `s h / 2`
elements. Heads, widths and vocabulary are assumed to divide evenly. Not counted: the sums over the vocabulary in the
loss, `O(s)` elements, and gathering a backward's input once more, which overlaps with computation.
"""

from dataclasses import replace

from stagecut.models.families.chain import FP32_BYTES, INDEX_BYTES, MASK_BYTES, LayerCounts


def attention_part(
    *,
    tokens: int,
    hidden: int,
    heads: int,
    key_width: int | None = None,
    biased: bool = True,
    dropout: bool = True,
) -> LayerCounts:
    """Attention part; `biased` means biases and LayerNorm, otherwise no biases and RMSNorm."""
    keys = hidden if key_width is None else key_width
    weights = 2 * hidden * hidden + 2 * hidden * keys
    biases_and_norm = 2 * hidden + 2 * keys + 2 * hidden if biased else hidden
    return LayerCounts(
        name="attention",
        kind="attention",
        params=weights + biases_and_norm,
        forward_flops=2 * tokens * weights + 4 * tokens * tokens * hidden,
        saved=tokens * (4 * hidden + 2 * keys),
        saved_fixed_bytes=FP32_BYTES * heads * tokens + MASK_BYTES * tokens * hidden * dropout,
        output=tokens * hidden,
        working=tokens * (3 * hidden + 2 * keys),
        all_reduced=tokens * hidden,
    )


def feed_forward_part(*, tokens: int, hidden: int, width: int, dropout: bool = True) -> LayerCounts:
    """Feed-forward part with GeLU, biases and LayerNorm."""
    return LayerCounts(
        name="feed-forward",
        kind="feed-forward",
        params=2 * hidden * width + width + hidden + 2 * hidden,
        forward_flops=4 * tokens * hidden * width,
        saved=tokens * (2 * hidden + 2 * width),
        saved_fixed_bytes=MASK_BYTES * tokens * hidden * dropout,
        output=tokens * hidden,
        working=tokens * (hidden + 2 * width),
        all_reduced=tokens * hidden,
    )


def dense_blocks(
    blocks: int, *, tokens: int, hidden: int, heads: int, width: int, dropout: bool = True
) -> tuple[LayerCounts, ...]:
    """Attention part and feed-forward part of each block."""
    return repeated(
        blocks,
        attention_part(tokens=tokens, hidden=hidden, heads=heads, dropout=dropout),
        feed_forward_part(tokens=tokens, hidden=hidden, width=width, dropout=dropout),
    )


def repeated(blocks: int, *parts: LayerCounts) -> tuple[LayerCounts, ...]:
    """The parts of every block, named like `block3.attention`."""
    return tuple(replace(part, name=f"block{block}.{part.name}") for block in range(blocks) for part in parts)


def token_embedding(*, tokens: int, hidden: int, params: int, dropout: bool = True) -> LayerCounts:
    """Token embedding with all its matrices given as `params`."""
    return LayerCounts(
        name="embedding",
        kind="embedding",
        params=params,
        saved_fixed_bytes=INDEX_BYTES * tokens + MASK_BYTES * tokens * hidden * dropout,
        output=tokens * hidden,
        working=tokens * hidden,
        all_reduced=tokens * hidden / 2,
    )


def token_head(
    *, tokens: int, hidden: int, vocabulary: int, params: int, tied: bool, normed: bool = True
) -> LayerCounts:
    """Token head with everything it owns given as `params`; the last layer, so it has no output."""
    return LayerCounts(
        name="head",
        kind="head",
        params=params,
        shared_params=vocabulary * hidden if tied else 0,
        forward_flops=2 * tokens * hidden * vocabulary,
        saved=tokens * hidden * (2 if normed else 1),
        saved_fixed_bytes=FP32_BYTES * tokens * vocabulary + INDEX_BYTES * tokens,
        working=tokens * (hidden + vocabulary),
        working_fixed_bytes=FP32_BYTES * tokens * vocabulary,
        all_reduced=tokens * hidden / 2,
    )
