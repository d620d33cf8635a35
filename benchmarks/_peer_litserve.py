"""The model behind LitServe: one API process, one worker, dynamic batches."""

from __future__ import annotations

from typing import Any

import litserve

from _peer_model import BATCH, PORT, ROUTE, Model


class Api(litserve.LitAPI):  # type: ignore[misc]
    """Answers a batch of bodies in one pass."""

    def setup(self, device: str) -> None:
        """Load the model, in the worker."""
        self.model = Model()

    def batch(self, inputs: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Keep bodies apart: rows are joined by the model."""
        return inputs

    def predict(self, bodies: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Answer them."""
        return self.model.answer(bodies)

    def unbatch(self, output: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Give each request its own."""
        return output


if __name__ == "__main__":
    api = Api(max_batch_size=BATCH, batch_timeout=0.002, api_path=ROUTE)
    server = litserve.LitServer(api, accelerator="cpu", workers_per_device=1, timeout=60)
    server.run(host="127.0.0.1", port=PORT, generate_client_file=False, log_level="error")
