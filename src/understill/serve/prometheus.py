"""Prometheus metrics of requests, rows and passes, by all workers together."""

from __future__ import annotations

import os

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.multiprocess import MultiProcessCollector

#: Names the folder where workers keep their numbers for each other; the library reads it when it is imported.
SHARED = "PROMETHEUS_MULTIPROC_DIR"

disable_created_metrics()  # type: ignore[no-untyped-call]

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)


class ServerMetrics:
    """The metrics of one process; shared with the other workers where there are some."""

    def __init__(self) -> None:
        self.shared = SHARED in os.environ
        self.registry = CollectorRegistry()
        if not self.shared:
            ProcessCollector(registry=self.registry)
        own = None if self.shared else self.registry
        route, status, part = "route", "status", ["part"]
        self.requests = Counter("understill_requests", "Requests, by route and status.", [route, status], registry=own)
        self.seconds = Histogram(
            "understill_request_seconds", "Seconds of a request.", [route], buckets=_SECONDS, registry=own
        )
        self.rows = Counter("understill_rows", "Rows answered.", part, registry=own)
        self.pass_rows = Histogram("understill_pass_rows", "Rows of a pass.", part, buckets=_ROWS, registry=own)
        self.pass_seconds = Histogram(
            "understill_pass_seconds", "Seconds of a pass.", part, buckets=_SECONDS, registry=own
        )
        self.cut = Counter("understill_connections_cut", "Connections cut, by reason.", ["reason"], registry=own)
        self.failed = Counter("understill_failed_passes", "Passes that failed.", part, registry=own)
        self.waiting = Gauge(
            "understill_waiting_rows", "Rows that wait.", part, registry=own, multiprocess_mode="livesum"
        )

    def count_request(self, route: str, status: int, seconds: float) -> None:
        """Count a request that has been answered."""
        self.requests.labels(route, str(status)).inc()
        self.seconds.labels(route).observe(seconds)

    def count_pass(self, part: str, rows: int, answered: int, seconds: float) -> None:
        """Count a pass of the model or of the teacher; it failed if not all of its rows are answered."""
        self.rows.labels(part).inc(answered)
        self.pass_rows.labels(part).observe(rows)
        self.pass_seconds.labels(part).observe(seconds)
        if answered < rows:
            self.failed.labels(part).inc()

    def text(self) -> bytes:
        """Return all metrics as Prometheus reads them."""
        registry = self.registry
        if self.shared:
            registry = CollectorRegistry()
            MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
        return generate_latest(registry)
