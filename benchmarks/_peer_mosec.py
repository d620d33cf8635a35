"""The model behind mosec: its HTTP server in Rust, one worker, dynamic batches."""

from __future__ import annotations

import sys
from typing import Any

from mosec import Server, Worker

from _peer_model import BATCH, PORT, ROUTE, Model


class Inference(Worker):  # type: ignore[misc]
    """Answers a batch of bodies in one pass."""

    def __init__(self) -> None:
        super().__init__()
        self.model = Model()

    def forward(self, data: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Answer them."""
        return self.model.answer(data)


if __name__ == "__main__":
    sys.argv[1:] = ["--address", "127.0.0.1", "--port", str(PORT), "--timeout", "60000", "--log-level", "error"]
    server = Server()
    server.append_worker(Inference, num=1, max_batch_size=BATCH, max_wait_time=1, route=ROUTE)
    server.run()
