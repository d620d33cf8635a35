"""The BiLSTM: one LSTM over a text's words and one over the same words backwards; their last states."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class BiLstm(nn.Module):
    """Two LSTMs, whose states after the last real word stand side by side.

    The backward one reads a gather that turns round the real words alone. So no state has seen padding, nothing goes by
    the longest row, and there is no packed sequence, which no export takes.
    """

    def __init__(self, size: int, hidden: int) -> None:
        super().__init__()
        self.width = 2 * hidden
        self.onward = nn.LSTM(size, hidden, batch_first=True)
        self.back = nn.LSTM(size, hidden, batch_first=True)

    def forward(self, words: Tensor, lengths: Tensor) -> Tensor:
        """Return one vector per text, [n, width], of its words' vectors [n, L, size]; 0 for a text without words."""
        last = (lengths - 1).clamp(min=0).unsqueeze(1)  # [n, 1]
        cells = torch.arange(words.shape[1], device=words.device)
        turned = torch.where(cells < lengths.unsqueeze(1), last - cells, cells)  # [n, L]
        backwards = words.gather(1, turned.unsqueeze(2).expand_as(words))
        states = [_at(last, lstm(way)[0]) for lstm, way in ((self.onward, words), (self.back, backwards))]
        both = torch.cat(states, dim=1)
        return both * (lengths > 0).unsqueeze(1).to(both.dtype)


def _at(place: Tensor, states: Tensor) -> Tensor:
    """Return the state at one place of each row, [n, hidden]."""
    return states.gather(1, place.unsqueeze(2).expand(-1, 1, states.shape[2])).squeeze(1)
