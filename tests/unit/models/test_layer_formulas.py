"""Counts of layers of any size against the formulas of docs/models.md."""

from hypothesis import given, settings
from hypothesis import strategies as st

from stagecut.models.families.convolution import Convolution, convolution_layer
from stagecut.models.families.image_head import image_head
from stagecut.models.families.llama import LlamaShape, llama
from stagecut.models.families.mixtral import MixtralShape, mixtral
from stagecut.models.families.operators import Dim
from stagecut.models.families.token_ends import token_embedding, token_head
from stagecut.models.families.transformer import Residual, attention_part, feed_forward_part

small = st.integers(1, 9)
residuals = st.builds(
    Residual,
    tokens=small,
    hidden=st.just(24),
    biased=st.booleans(),
    dropout=st.booleans(),
    norm_first=st.booleans(),
)


def counts(layer):
    return {
        "params": layer.params,
        "shared_params": layer.shared_params,
        "flops": layer.forward_flops,
        "saved": (layer.saved, layer.saved_fixed_bytes),
        "output": layer.output,
        "working": (layer.working, layer.working_fixed_bytes),
    }


@given(residuals, st.sampled_from([(4, 4), (4, 2), (6, 1), (1, 1)]))
@settings(max_examples=30)
def test_attention_part(residual, heads):
    a, key_heads = heads
    s, h = residual.tokens, residual.hidden
    k = h // a * key_heads
    norm_and_biases = 2 * h + 2 * h + 2 * k if residual.biased else h
    assert counts(attention_part(residual, heads=a, key_heads=key_heads)) == {
        "params": 2 * h * h + 2 * h * k + norm_and_biases,
        "shared_params": 0,
        "flops": 2 * s * (2 * h * h + 2 * h * k) + 4 * s * s * h,
        "saved": (4 * s * h + 2 * s * k, 4 * a * s + s * h * residual.dropout),
        "output": s * h,
        "working": (s * (3 * h + 2 * k), 0),
    }


@given(residuals.filter(lambda residual: residual.biased), small)
@settings(max_examples=30)
def test_feed_forward_part(residual, f):
    s, h = residual.tokens, residual.hidden
    assert counts(feed_forward_part(residual, width=f)) == {
        "params": 2 * h * f + f + h + 2 * h,
        "shared_params": 0,
        "flops": 4 * s * h * f,
        "saved": (2 * s * h + 2 * s * f, s * h * residual.dropout),
        "output": s * h,
        "working": (s * (h + 2 * f), 0),
    }


@given(residuals, small, st.integers(0, 3))
@settings(max_examples=30)
def test_token_embedding(residual, v, p):
    s, h = residual.tokens, residual.hidden
    assert counts(token_embedding(residual, vocabulary=v, positions=p)) == {
        "params": (v + p) * h,
        "shared_params": 0,
        "flops": 0,
        "saved": (0, 8 * s + s * h * residual.dropout * (p > 0)),
        "output": s * h,
        "working": (s * h, 0),
    }


@given(residuals, small, st.booleans(), st.booleans())
@settings(max_examples=30)
def test_token_head(residual, v, tied, normed):
    s, h = residual.tokens, residual.hidden
    norm = (2 * h if residual.biased else h) * normed
    assert counts(token_head(residual, vocabulary=v, tied=tied, normed=normed)) == {
        "params": norm + v * h * (not tied),
        "shared_params": v * h * tied,
        "flops": 2 * s * h * v,
        "saved": (2 * s * h if normed else s * h, 4 * s * v + 8 * s),
        "output": 0,
        "working": (s * v + s * h, 4 * s * v),
    }


@given(s=small, f=small, experts=small, used=st.integers(1, 3))
@settings(max_examples=30)
def test_gated_feed_forward_part_and_experts(s, f, experts, used):
    h, shape = 8, {"blocks": 1, "hidden": 8, "heads": 2, "key_heads": 1, "width": f, "vocabulary": 3}
    assert counts(llama(LlamaShape(**shape), s).layers[2]) == {
        "params": 3 * h * f + h,
        "shared_params": 0,
        "flops": 6 * s * h * f,
        "saved": (2 * s * h + 4 * s * f, 0),
        "output": s * h,
        "working": (s * (h + 3 * f), 0),
    }
    assert counts(mixtral(MixtralShape(**shape, experts=experts, experts_per_token=used), s).layers[2]) == {
        "params": experts * 3 * h * f + experts * h + h,
        "shared_params": 0,
        "flops": used * 6 * s * h * f + 2 * s * h * experts,
        "saved": (2 * s * h + s * experts + used * (2 * s * h + 4 * s * f), 0),
        "output": s * h,
        "working": (s * h + used * s * (h + 3 * f), 0),
    }


@given(c=small, o=small, q=st.sampled_from([1, 3]), y=st.sampled_from([2, 4]), pooled=st.booleans())
@settings(max_examples=30)
def test_convolution(c, o, q, y, pooled):
    made, handed = o * y * y, o * y * y // 4 if pooled else o * y * y
    convolution = Convolution(inputs=c, outputs=o, kernel=q, side=y)
    assert counts(convolution_layer("c", convolution, pooled=pooled)) == {
        "params": q * q * c * o + o,
        "shared_params": 0,
        "flops": 2 * q * q * c * o * y * y,
        "saved": (c * y * y + made * pooled, 8 * handed * pooled),
        "output": handed,
        "working": (c * y * y + made + handed * pooled, 0),
    }


@given(w=small, n=small)
@settings(max_examples=30)
def test_image_head(w, n):
    assert counts(image_head("h", feature=Dim(name="feature", size=w), classes=n)) == {
        "params": n * w + n,
        "shared_params": 0,
        "flops": 2 * n * w,
        "saved": (w, 4 * n + 8),
        "output": 0,
        "working": (w + n, 4 * n),
    }
