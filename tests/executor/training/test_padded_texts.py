"""Masks for padding travel from stage to stage: ranks as processes."""

from functools import partial
from typing import Any

import torch
from torch import Generator

from stagecut import executor
from stagecut.executor.manual_plan import plan_of
from stagecut.executor.play.reference import reference_step
from stagecut.models.modules.losses import IGNORED
from stagecut.planner.core.plan import Plan
from tests.executor import pool

PLAN = plan_of((0, 2, 5), num_microbatches=3)
"""Two ranks: embedding and a block, then two blocks and the head."""
FROZEN = partial(torch.optim.SGD, lr=0.0)


def chain() -> Any:
    """A Mistral whose window is shorter than the texts."""
    from transformers import MistralConfig

    from stagecut.models.hugging_face import chain_of

    widths = {"hidden_size": 32, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 48}
    return chain_of(MistralConfig(**widths, num_hidden_layers=3, vocab_size=61, sliding_window=4))


def padded_batch(num_samples: int) -> Any:
    """Texts of 12 tokens, of which the first ones are padding: none in text 0, one in text 1 ..."""
    tokens = torch.randint(61, (num_samples, 12), generator=Generator().manual_seed(0))
    mask = torch.arange(12) >= torch.arange(num_samples)[:, None]
    return (tokens, mask), tokens.masked_fill(~mask, IGNORED)


def largest_difference(plan: Plan) -> float:
    """From a single process, of losses and gradients."""
    torch.set_default_dtype(torch.float64)
    pipeline = executor.load(plan, chain(), optimizer=FROZEN, seed=5)
    batch = padded_batch(pipeline.global_batch)
    expected = reference_step(chain(), batch, chain().loss, seed=5)
    differences = [abs(pipeline.evaluate(batch) - expected.loss), abs(pipeline.step(batch) - expected.loss)]
    differences += [
        float((parameter.grad.cpu() - expected.gradients[name]).abs().max())
        for name, parameter in pipeline.named_parameters().items()
    ]
    return max(differences)


def test_two_stages_compute_what_a_single_process_does() -> None:
    assert max(pool.run(largest_difference, PLAN, world_size=2)) < 1e-12
