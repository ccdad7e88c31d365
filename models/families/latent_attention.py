"""Latent attention.

DeepSeek's multi-head latent attention: queries through a latent of rank `q`, keys and values through one of rank `c`,
with `n` elements per head of queries and keys without positions and `r` rotary ones, which all keys share, and `u`
elements per value.

- parameters: `h q + q + q a (n + r)`, without a query latent `h a (n + r)`; `h (c + r) + c + c a (n + u)`; projection
  `a u h`
- forward FLOPs: twice the products for every token, and `2 s^2 a (n + r + u)`
- saved: both latents before and after their norms, queries and keys, `s a (n + r)` each, since every key holds a copy
  of the rotary elements, values and attention output, `s a u` each; softmax statistics, `4 a s` bytes

Under tensor parallelism the latents are assumed to be sharded like everything else.
"""

from dataclasses import dataclass

from stagecut.models.families.operators import Dim, OperatorCounts, TensorCounts, WeightCounts, elementwise, linear
from stagecut.models.families.transformer import HEAD, Residual, attention_core, projection
from stagecut.planner.core.operators.operators import SAMPLE, TOKEN

LATENT, QUERY_LATENT = "latent", "query latent"


@dataclass(frozen=True, slots=True, kw_only=True)
class LatentAttention:
    """Widths and ranks of the attention of one block."""

    heads: int
    query_rank: int | None
    """None: queries are made of the hidden state."""
    key_rank: int
    plain_width: int
    """Elements without positions of a query and of a key."""
    rotary_width: int
    value_width: int
    biased: bool = False
    """Whether the products with the hidden width have biases."""

    @property
    def key_width(self) -> int:
        """Elements of a query, and of a key."""
        return self.plain_width + self.rotary_width

    def operators(self, residual: Residual, taken: str) -> tuple[OperatorCounts, ...]:
        """From the normed tensor to "inner", divided by heads."""
        token = residual.token
        values = Dim(name=HEAD, size=self.heads * self.value_width, units=self.heads)
        core = attention_core((token, values), heads=self.heads, key_width=self.key_width, value_width=self.value_width)
        products = (*self._queries(residual, taken), *self._keys(residual, taken))
        return (*products, core, projection(residual, values, biased=self.biased))

    def _queries(self, residual: Residual, taken: str) -> tuple[OperatorCounts, ...]:
        token, wide, width = residual.token, residual.wide, self.heads * self.key_width
        head, made = Dim(name=HEAD, size=width, units=self.heads), {"queries": width}
        if self.query_rank is None:
            return (linear("queries", taken, made=made, over=(token,), given=wide, out=head, biased=False, saved=True),)
        latent = Dim(name=QUERY_LATENT, size=self.query_rank)
        normed = f"normed {QUERY_LATENT}"
        return (
            self._compressed(residual, taken, latent),
            _latent_norm(latent, token, kept=self.query_rank),
            linear("queries", normed, made=made, over=(token,), given=latent, out=head, biased=False, saved=True),
        )

    def _keys(self, residual: Residual, taken: str) -> tuple[OperatorCounts, ...]:
        token, both = residual.token, self.heads * (self.plain_width + self.value_width)
        compressed = Dim(name=LATENT, size=self.key_rank + self.rotary_width)
        return (
            self._compressed(residual, taken, compressed),
            _latent_norm(compressed, token, kept=self.key_rank),
            linear(
                "keys and values",
                f"normed {LATENT}",
                made={"keys": self.heads * self.key_width, "values": self.heads * self.value_width},
                over=(token,),
                given=Dim(name=LATENT, size=self.key_rank),
                out=Dim(name=HEAD, size=both, units=self.heads),
                biased=False,
                saved=True,
            ),
        )

    def _compressed(self, residual: Residual, taken: str, latent: Dim) -> OperatorCounts:
        made, name = {latent.name: latent.size}, f"compress to {latent.name}"
        return linear(
            name,
            taken,
            made=made,
            over=(residual.token,),
            given=residual.wide,
            out=latent,
            biased=self.biased,
            saved=True,
        )


def _latent_norm(latent: Dim, token: Dim, *, kept: int) -> OperatorCounts:
    """RMSNorm of the first `kept` elements of a latent; the others pass."""
    elements = token.size * latent.size
    return elementwise(
        f"norm of {latent.name}",
        (latent.name,),
        TensorCounts(name=f"normed {latent.name}", dims=(SAMPLE, TOKEN, latent.name), elements=elements, saved=True),
        kind="norm",
        over=(token,),
        whole=(latent.name,),
        weights=(WeightCounts(name="weight", dims=(latent.name,), elements=kept),),
        working=elements,
    )
