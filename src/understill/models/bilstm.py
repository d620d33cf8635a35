"""The BiLSTM: one LSTM over a text's words and one over the same words backwards; their last states."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from understill import kernels
from understill.models.textnet import TextNetwork
from understill.plugins import NETWORKS

#: Texts that are read at once where padding is left out: few enough for a CPU's cache, or for a GPU's memory.
_ROWS = {"cpu": 512, "cuda": 1 << 17}
#: States are filled up with units that stay 0 to a multiple of this, for which products are quick.
_MULTIPLE = 8


class Gates(NamedTuple):
    """The part of both LSTMs' gates that depends on the word alone, computed once for each word."""

    table: Tensor  # [words, 2, 4 · units], of both directions
    weights: Tensor  # [2, units, 4 · units], by which states are added to it
    words: Tensor  # int64 [tokens], the words of all texts as rows of the table


@NETWORKS.own("bilstm")
class BiLstm(TextNetwork):
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

    @torch.no_grad()
    def read(self, channels: Sequence[nn.Embedding], ids: Tensor, starts: Tensor, lengths: Tensor) -> Tensor:
        """Return what `forward` does for texts that lie within a line of ids, faster: [n, width].

        Each word is multiplied by the weights once, and each time step has only those texts that are long enough.
        Under autocast on CUDA it computes in float16, which is finer than bfloat16, and keeps the cells in float32.
        """
        kind = channels[0].weight.dtype
        half = ids.is_cuda and torch.is_autocast_enabled("cuda")
        with torch.autocast(ids.device.type, enabled=False):
            gates = self._gates(channels, ids, torch.float16 if half else kind)
            ordered, order = lengths.sort(descending=True)
            starts = starts[order]
            # How many texts take each step; to ask for it is the only wait for the device.
            steps = torch.arange(int(ordered[0]) if len(ordered) else 0, device=ids.device)
            alive = (len(lengths) - torch.searchsorted(ordered.flip(0), steps, right=True)).tolist()
            states, most = [], _ROWS.get(ids.device.type, _ROWS["cpu"])
            for first in range(0, len(ordered), most):
                rows = slice(first, first + most)
                here = [count for each in alive if (count := min(each - first, most)) > 0]
                states.append(_last_states(gates, starts[rows], ordered[rows], here))
            texts = ids.new_empty(len(ordered), self.width, dtype=kind)
            if states:
                units = torch.cat(states, dim=1)[..., : self.width // 2]  # [2, n, hidden]
                texts[order] = torch.cat([*units.to(kind)], dim=1)
        return texts

    def _gates(self, channels: Sequence[nn.Embedding], ids: Tensor, kind: torch.dtype) -> Gates:
        """Return the gates of the words in these texts, or of the whole vocabulary, whichever is smaller."""
        every = len(ids) >= channels[0].num_embeddings
        seen = torch.cat([channel.weight if every else channel(ids) for channel in channels], dim=1)
        spare = -self.onward.hidden_size % _MULTIPLE

        def units(weight: Tensor) -> Tensor:
            """Fill the units of all four gates up, and give them below each other."""
            return functional.pad(weight.reshape(4, self.onward.hidden_size, -1), (0, 0, 0, spare)).flatten(0, 1)

        lstms = [dict(lstm.named_parameters()) for lstm in (self.onward, self.back)]
        before = torch.cat([units(lstm["weight_ih_l0"]) for lstm in lstms]).to(kind)
        bias = torch.cat([units(lstm["bias_ih_l0"] + lstm["bias_hh_l0"]) for lstm in lstms]).squeeze(1).to(kind)
        after = [functional.pad(units(lstm["weight_hh_l0"]), (0, spare)).t() for lstm in lstms]
        table = functional.linear(seen.to(kind), before, bias).unflatten(1, (2, -1))
        return Gates(table, torch.stack(after).to(kind), ids if every else torch.arange(len(ids), device=ids.device))


def _last_states(gates: Gates, starts: Tensor, lengths: Tensor, alive: list[int]) -> Tensor:
    """Return the last states of texts, longest first, in both directions, [2, n, units]."""
    shape = (2, len(starts), gates.weights.shape[1])
    states = gates.table.new_zeros(shape)
    cells = gates.table.new_zeros(shape, dtype=torch.promote_types(gates.table.dtype, torch.float32))
    fused = _fused(gates.table)
    for step, count in enumerate(alive):
        if fused:
            from understill.kernels.lstm import take_step

            added = torch.bmm(states[:, :count], gates.weights)
            take_step(added, gates.table, gates.words, starts, lengths, states, cells, step)
            continue
        begin, end = starts[:count], starts[:count] + lengths[:count] - 1
        for way, place in enumerate((begin + step, end - step)):
            known = gates.table[gates.words[place], way]
            entry, forget, candidate, out = (
                torch.addmm(known, states[way, :count], gates.weights[way]).to(cells.dtype).chunk(4, dim=1)
            )
            cell = cells[way, :count].mul_(forget.sigmoid_()).add_(entry.sigmoid_() * candidate.tanh_())
            states[way, :count] = out.sigmoid_() * cell.tanh()
    return states


def _fused(table: Tensor) -> bool:
    """Tell whether a step can be one kernel."""
    return table.is_cuda and not kernels.fault()


def _at(place: Tensor, states: Tensor) -> Tensor:
    """Return the state at one place of each row, [n, hidden]."""
    return states.gather(1, place.unsqueeze(2).expand(-1, 1, states.shape[2])).squeeze(1)
