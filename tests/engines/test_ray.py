"""On a real cluster of two nodes a run is what it is on one machine, though a node is lost on the way.

Ray, and the S3 server, are installed by: pip install -c constraints.txt -e '.[ray,s3]' 'moto[server]'
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from understill.engines.ray import on_ray
from understill.engines.ray_data import labelling_on_ray
from understill.engines.study import run_study
from understill.errors import UserError
from understill.events import Event, Report, Scored, TrainingState
from understill.inference.labelling import label_shards
from understill.inference.shards import LabelJob
from understill.recipe import make_recipe

ray = pytest.importorskip("ray", reason="pip install ray: the cluster engine is not tested without")
from cluster import s3_server, two_nodes, values  # noqa: E402

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def store() -> Iterator[str]:
    """A bucket of an S3 server."""
    pytest.importorskip("s3fs", reason="pip install s3fs: artefacts on S3 are not tested without")
    pytest.importorskip("moto.server", reason="pip install 'moto[server]': there is no S3 server to test with")
    with s3_server() as url:
        yield url


@pytest.fixture
def nodes(store: str) -> Iterator[Any]:
    """Two nodes, begun after the S3 server, whose address they know."""
    with two_nodes() as cluster:
        ray.init(address=cluster.address, log_to_driver=False)
        try:
            yield cluster
        finally:
            ray.shutdown()


@pytest.fixture(scope="module")
def expected(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The scores of the local engine."""
    return scores(run_study(make_recipe(values(tiny, tmp_path_factory.mktemp("local")))))


def scores(runs: Any) -> dict[str, Any]:
    return {model.name: model.scores for run in runs for model in run.models}


@pytest.mark.parametrize("shared", [True, False])
def test_a_run_is_complete_and_the_same_though_a_node_is_lost(
    nodes: Any, store: str, expected: dict[str, Any], tiny: Path, tmp_path: Path, shared: bool
) -> None:
    seen: list[Event] = []

    def watch(event: Event) -> None:
        seen.append(event)
        trained = sum(isinstance(each, TrainingState) and each.state == "new" for each in seen)
        if trained == 3 and isinstance(event, TrainingState):
            nodes.remove_node(nodes.other, allow_graceful=False)

    with on_ray(store=None if shared else store) as engine:
        runs = run_study(make_recipe(values(tiny, tmp_path)), watch, engine)
    assert not nodes.other.any_processes_alive()
    assert scores(runs) == expected
    assert {event.model for event in seen if isinstance(event, Scored)} == set(expected)
    assert any(isinstance(event, Report) for event in seen)


def test_shards_are_labelled_as_by_one_process_though_a_node_is_lost(
    nodes: Any, model_folder: Path, tmp_path: Path
) -> None:
    (tmp_path / "shards").mkdir()
    for number in range(8):
        rows = {
            "nr": range(number * 100, number * 100 + 100),
            "text": [f"text {row} of {number}" for row in range(100)],
        }
        pq.write_table(pa.table(rows), tmp_path / "shards" / f"{number}.parquet")
    job = LabelJob(model_folder, tmp_path / "shards", tmp_path / "labelled", ("mood",), device="cpu")
    alone = replace(job, target=tmp_path / "alone")
    label_shards(alone)
    lost: list[Event] = []

    def watch(event: Event) -> None:
        if not lost:
            lost.append(event)
            nodes.remove_node(nodes.other, allow_graceful=False)

    with labelling_on_ray(None, 2) as labeller:
        assert label_shards(job, watch=watch, labeller=labeller).rows == 800
    assert lost
    for number in range(8):
        one, other = (pq.read_table(each.target / f"{number}.parquet") for each in (job, alone))
        assert one.equals(other)


def test_a_mistake_is_reported_as_on_one_machine(nodes: Any, tiny: Path, tmp_path: Path) -> None:
    recipe = make_recipe({**values(tiny, tmp_path, 6), "targets": {"weak": "stop"}})
    with on_ray() as engine, pytest.raises(UserError, match="teachers should not teach"):
        run_study(recipe, engine=engine)


def test_an_address_without_a_cluster_is_refused() -> None:
    with pytest.raises(UserError, match="no cluster answers there"), on_ray("127.0.0.1:9"):
        pass
