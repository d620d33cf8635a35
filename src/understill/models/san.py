"""The stochastic answer network: a head for pairs that reads the first text several times over."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from understill.models.dropout import drop_by_row


class San(nn.Module):
    """A head that answers after each of several looks at the first text, and gives the mean of its answers.

    The state starts as a summary of the second text. A step attends from the state to the first text, updates the
    state by what it sees, and answers from both. While training, whole answers are dropped; the mean is then that of
    the others. With `authors_order` a step answers from the state before its update, as the authors' released code
    does, so that the first answer knows no update and the last update goes unused.
    """

    def __init__(
        self,
        width: int,
        outputs: int,
        *,
        steps: int = 5,
        step_dropout: float = 0.1,
        authors_order: bool = False,
        spread: float = 0.02,
    ) -> None:
        super().__init__()
        self.steps = steps
        self.step_dropout = step_dropout
        self.authors_order = authors_order
        self.summary = nn.Linear(width, 1, bias=False)
        self.attention = nn.Linear(width, width, bias=False)
        self.update = nn.GRUCell(width, width)  # with torch's own first weights
        self.out = nn.Linear(4 * width, outputs)
        for layer in (self.summary, self.attention, self.out):
            nn.init.normal_(layer.weight, std=spread)
        nn.init.zeros_(self.out.bias)

    def forward(self, states: Tensor, first: Tensor, second: Tensor, rate: Tensor) -> Tensor:
        """Return the log-probabilities of the outputs, [n, outputs], from the states [n, L, width] of the tokens.

        `first` and `second`, [n, L], say which tokens are of which text; without a second the first is summarised.
        `rate`, [n], is each row's dropout.
        """
        # What stands elsewhere may be anything: times a weight of 0, NaN would still be NaN.
        memory = states.masked_fill(~(first | second).unsqueeze(2), 0.0)
        asked = second | (first & ~second.any(dim=1, keepdim=True))

        # The authors drop the same features of all tokens, so the mask may as well stand on the other factor, which is
        # L times smaller. It falls on the summarised text, and on the attended one in its scores only.
        kept = self._dropout(torch.ones_like(self.summary.weight).expand(states.shape[0], -1), rate)
        state = kept * _read(memory, kept * self.summary.weight, asked)
        answers = []
        for _ in range(self.steps):
            query = self._dropout(self.attention(self._dropout(state, rate)), rate)
            seen = _read(memory, query, first)
            updated = self.update(seen, self._dropout(state, rate))
            answering = state if self.authors_order else updated
            answers.append(torch.cat([answering, seen, (answering - seen).abs(), answering * seen], dim=1))
            state = updated
        logits = self.out(self._dropout(torch.stack(answers, dim=1), rate))  # [n, steps, outputs]
        return self._mean(_widened(logits).log_softmax(dim=2))

    def _mean(self, answers: Tensor) -> Tensor:
        """Return the logarithm of the mean distribution; while training, of the answers that survive."""
        if not self.training:
            return answers.logsumexp(dim=1) - math.log(self.steps)
        kept = _survivors(len(answers), self.steps, self.step_dropout, answers.device).unsqueeze(2)
        return answers.masked_fill(~kept, -torch.inf).logsumexp(dim=1) - kept.sum(dim=1, dtype=answers.dtype).log()

    def _dropout(self, values: Tensor, rate: Tensor) -> Tensor:
        return drop_by_row(values, rate) if self.training else values


def _read(memory: Tensor, query: Tensor, there: Tensor) -> Tensor:
    """Return the mean of the tokens that are there, [n, width], weighted by how they answer a query; 0 without any."""
    scores = _widened((memory @ query.unsqueeze(2)).squeeze(2))
    # Not −∞, of which a row without tokens would make NaN.
    weights = scores.masked_fill(~there, torch.finfo(scores.dtype).min).softmax(dim=1) * there
    return (weights.to(memory.dtype).unsqueeze(1) @ memory).squeeze(1)


def _survivors(rows: int, steps: int, rate: float, device: torch.device) -> Tensor:
    """Say which answers survive, [rows, steps]: each is dropped with a probability, but never all of a row.

    Where all fall below the rate, the one that was drawn highest stays: any of them, with equal chance. So steps are
    alike, a row's weights add up to 1, and the expectation of each is 1 / steps.
    """
    drawn = torch.rand(rows, steps, device=device)
    return drawn >= drawn.amax(dim=1, keepdim=True).clamp(max=rate)


def _widened(values: Tensor) -> Tensor:
    """Return values in fp32 at least."""
    return values.to(torch.promote_types(values.dtype, torch.float32))
