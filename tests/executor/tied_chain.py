"""A small chain of every kind: skip tensors, tied weights, and layers that devices can share."""

import torch
from torch import nn
from torch.distributed.tensor import Replicate
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel

from stagecut.models.modules.module_chain import LayerModule, ModuleChain, Tie
from stagecut.planner.core.plan import Plan

WIDTH, VOCABULARY, TOKENS = 8, 12, 3
NUM_LAYERS = 6
TOLERANCE = 1e-9


class Embedding(nn.Module):
    """Tokens to vectors, and a skip tensor for the head."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, WIDTH)

    def forward(self, tokens: torch.Tensor) -> tuple[torch.Tensor, ...]:
        hidden = self.tokens(tokens)
        return hidden, hidden.mean(dim=1), tokens


class Block(nn.Module):
    """Two products that devices can share, and a residual sum; passes on what it does not use."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.up = nn.Linear(WIDTH, 4 * WIDTH)
        self.down = nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, hidden: torch.Tensor, skipped: torch.Tensor, tokens: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return hidden + self.down(torch.tanh(self.up(self.norm(hidden)))), skipped, tokens


class Head(nn.Module):
    """Scores of every token, with the embedding's matrix."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, hidden: torch.Tensor, skipped: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
        return self.tokens(hidden + skipped[:, None] + 0.01 * tokens[..., None])


def chain() -> ModuleChain:
    """Embedding, blocks and a tied head; every layer can be shared by two devices."""
    return ModuleChain(
        name="tiny",
        layers=(
            LayerModule(
                name="embedding",
                build=Embedding,
                tensor_parallel=lambda: {"tokens": RowwiseParallel(input_layouts=Replicate())},
                divisible=2,
            ),
            *(
                LayerModule(
                    name=f"block{index}",
                    build=Block,
                    tensor_parallel=lambda: {"up": ColwiseParallel(), "down": RowwiseParallel()},
                    divisible=2,
                )
                for index in range(NUM_LAYERS - 2)
            ),
            LayerModule(
                name="head",
                build=Head,
                tensor_parallel=lambda: {"tokens": ColwiseParallel(output_layouts=Replicate())},
                divisible=2,
            ),
        ),
        ties=(Tie(owner=(0, "tokens.weight"), copy=(NUM_LAYERS - 1, "tokens.weight")),),
        loss=lambda output, targets: nn.functional.cross_entropy(output.flatten(0, 1), targets.flatten()),
        batch=None,
    )


def batch_of(plan: Plan) -> tuple[torch.Tensor, torch.Tensor]:
    """A random global batch, the same on all ranks."""
    samples = len(plan.pipelines) * plan.num_microbatches * plan.micro_batch
    tokens = torch.randint(VOCABULARY, (samples, TOKENS), generator=torch.Generator().manual_seed(samples))
    return tokens, tokens.flip(1)


def num_ranks(plan: Plan) -> int:
    """Devices of a plan."""
    return len({device for pipeline in plan.pipelines for stage in pipeline.stages for device in stage.devices})
