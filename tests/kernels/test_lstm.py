"""The kernel of an LSTM's steps: what torch's own LSTM says of every text, in both directions."""

from __future__ import annotations

import pytest
import torch

from understill import kernels
from understill.models import bilstm
from understill.models.bilstm import BiLstm

pytestmark = pytest.mark.gpu
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@pytest.fixture(autouse=True)
def working(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use the kernel, by Triton's interpreter where there is no GPU."""
    if DEVICE == "cuda":
        assert not kernels.fault()
    else:
        monkeypatch.setattr(bilstm, "_fused", lambda table: True)


@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize(("hidden", "known"), [(150, 40), (16, 4000)])
def test_texts_have_the_states_of_torchs_lstm(half: bool, hidden: int, known: int) -> None:
    if half and DEVICE == "cpu":
        pytest.skip("half precision is for CUDA devices")
    torch.manual_seed(0)
    network, words = BiLstm(30, hidden).to(DEVICE).eval(), torch.nn.Embedding(known, 30).to(DEVICE)
    lengths = torch.tensor([3, 0, 17, 1, 8, 5, 17, 2, 9], device=DEVICE)
    starts = lengths.cumsum(0) - lengths
    ids = torch.randint(0, known, (int(lengths.sum()) + 5,), device=DEVICE)
    padded = ids[(starts.unsqueeze(1) + torch.arange(17, device=DEVICE)).clamp(max=len(ids) - 1)]
    with torch.inference_mode(), torch.backends.cudnn.flags(enabled=False):  # cuDNN rounds to TF32
        want = network(words(padded), lengths)
        with torch.autocast(DEVICE, enabled=half):
            got = network.read([words], ids, starts, lengths)
    assert torch.allclose(got, want, rtol=0, atol=2e-3 if half else 1e-5)
