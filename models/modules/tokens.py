"""Token embedding and token head."""

import torch
from torch import Tensor, nn


class TokenEmbedding(nn.Module):
    """The token matrix, learned positions if there are any, and dropout."""

    def __init__(self, *, vocabulary: int, hidden: int, positions: int = 0, dropout: float = 0.0) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, hidden)
        self.positions = nn.Embedding(positions, hidden) if positions else None
        self.dropout = nn.Dropout(dropout)

    def forward(self, tokens: Tensor) -> Tensor:
        """From token ids (samples, tokens) to a hidden state (samples, tokens, width)."""
        hidden = self.tokens(tokens)
        if self.positions is not None:
            hidden = hidden + self.positions(torch.arange(tokens.shape[1], device=tokens.device))
        return self.dropout(hidden)


class TokenHead(nn.Module):
    """Final norm if there is one, and the product with the token matrix."""

    def __init__(self, *, vocabulary: int, hidden: int, norm: nn.Module | None) -> None:
        super().__init__()
        self.norm = nn.Identity() if norm is None else norm
        self.project = nn.Linear(hidden, vocabulary, bias=False)

    def forward(self, hidden: Tensor) -> Tensor:
        """Logits of shape (samples, tokens, vocabulary)."""
        return self.project(self.norm(hidden))
