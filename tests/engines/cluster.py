"""A real cluster of Ray on this machine, an S3 server, and the small run that goes through them.

    python tests/engines/cluster.py --kills 30

kills workers, nodes and the driver of such runs at random moments, and compares every result with the local engine's.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, get_args

import yaml

from understill.atomic import read_record
from understill.pipeline.stage import Action

BUCKET = "artefacts"
KINDS = ("worker", "node", "driver")


def values(encoder: Path, runs: Path, steps: int = 60) -> dict[str, Any]:
    """A small BAM: a teacher for each of three tasks, a student of all, a baseline."""
    return {
        "name": "bam", "data": {"demo": {"rows": 64}}, "tasks": ["mood", "follows", "similar"],
        "encoder": {"name": str(encoder), "max_length": 32},
        "training": {"steps": steps, "batch": 8, "lr": 1e-3, "evaluate": f"{steps // 3} steps",
                     "checkpoint": f"{steps // 6} steps"},
        "teachers": [{"tasks": "each"}], "targets": {"weak": "keep"}, "student": {},
        "output": {"folder": str(runs)}, "machine": {"device": "cpu", "threads": 1},
    }  # fmt: skip


@contextmanager
def two_nodes() -> Iterator[Any]:
    """A head with one core, and another node with one."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    from ray.cluster_utils import Cluster

    few = {"num_cpus": 1, "object_store_memory": 80 << 20}
    cluster = Cluster(initialize_head=True, head_node_args={**few, "include_dashboard": False})
    cluster.spare = lambda: cluster.add_node(**few)
    cluster.other = cluster.spare()
    try:
        yield cluster
    finally:
        cluster.shutdown()


@contextmanager
def s3_server() -> Iterator[str]:
    """A server of moto on a free port, whose address every process started later knows; give a URL in a bucket."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    keys = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_DEFAULT_REGION": "us-east-1"}
    os.environ.update(keys, AWS_ENDPOINT_URL=f"http://127.0.0.1:{port}")
    program = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with subprocess.Popen(program, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        try:
            _make_bucket()
            yield f"s3://{BUCKET}/runs"
        finally:
            server.kill()
            for name in (*keys, "AWS_ENDPOINT_URL"):
                os.environ.pop(name)


def _make_bucket() -> None:
    import s3fs

    for _ in range(120):
        try:
            s3fs.S3FileSystem(skip_instance_cache=True).mkdir(BUCKET)
            return
        except Exception:
            time.sleep(0.5)
    raise SystemExit("the S3 server did not start")


# Random kills ---------------------------------------------------------------------------------------------------------


def scores_of(runs: Path) -> dict[str, Any]:
    """The scores of every model of a finished run."""
    return {name: model["scores"] for name, model in read_record(runs / "bam" / "run.json")["models"].items()}


def call(recipe: Path, *more: str) -> subprocess.Popen[bytes]:
    """Begin a run."""
    program = [sys.executable, "-m", "understill", "run", str(recipe), "--no-report", *more]
    return subprocess.Popen(program, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


def busy_workers() -> list[int]:
    """The processes of workers that are at a task of ours, which Ray names them by."""
    result = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            title = path.read_bytes()
            parent = int((path.parent / "stat").read_text().rpartition(")")[2].split()[1])
        except (OSError, ValueError):
            continue
        busy = title.startswith(tuple(f"ray::{action} ".encode() for action in get_args(Action)))
        if busy and os.getpid() in _ancestors(parent):
            result.append(int(path.parent.name))
    return result


def _ancestors(pid: int) -> Iterator[int]:
    while pid > 1:
        yield pid
        try:
            pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            return


def run_killed(recipe: Path, cluster: Any, chance: random.Random, most: int, *more: str) -> Counter[str]:
    """Run a recipe on the cluster, and kill something now and then; return what was killed how often."""
    killed: Counter[str] = Counter()
    driver, due = call(recipe, "--engine", "ray", "--address", cluster.address, *more), 0.0
    while driver.poll() != 0:
        time.sleep(0.1)
        if driver.poll() is not None:  # it belonged to the node that was killed, and asks to be called again
            output = driver.stderr.read().decode()  # type: ignore[union-attr]
            if driver.returncode == 0:
                break
            if not any(words in output for words in ("run the same command again", "raylet", "no cluster answers")):
                raise SystemExit(f"the run ended with {driver.returncode}: {output[-2000:]}")
            killed["node of the driver"] += 1
            driver = call(recipe, "--engine", "ray", "--address", cluster.address, *more)
        workers = busy_workers()
        if not workers or sum(killed[kind] for kind in KINDS) >= most:
            due = 0.0
        elif not due:  # something is being made: it is killed soon
            due = time.monotonic() + chance.uniform(0, 6)
        if not due or time.monotonic() < due:
            continue
        what, due = chance.choice(KINDS), 0.0
        killed[what] += 1
        if what == "worker":
            os.kill(chance.choice(workers), signal.SIGKILL)
        elif what == "node":
            cluster.remove_node(cluster.other, allow_graceful=False)
            cluster.other = cluster.spare()
        else:
            driver.kill()
            driver.wait()
            driver = call(recipe, "--engine", "ray", "--address", cluster.address, *more)
    return killed


def main() -> None:
    """Kill so many times, in as many runs as it takes, and compare each with the local engine's."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=1200)
    parser.add_argument("--store", action="store_true", help="artefacts on an S3 server")
    options = parser.parse_args()
    sys.path.insert(0, str(Path(__file__).parents[1]))
    from tiny import save_tiny

    chance, killed, runs = random.Random(options.seed), Counter[str](), 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        encoder, recipe = save_tiny(folder / "encoder"), folder / "recipe.yaml"
        recipe.write_text(yaml.safe_dump(values(encoder, folder / "local", options.steps)))
        if call(recipe).wait():
            raise SystemExit("the local run failed")
        expected = scores_of(folder / "local")
        while sum(killed[kind] for kind in KINDS) < options.kills:
            begun = time.monotonic()
            recipe.write_text(yaml.safe_dump(values(encoder, folder / str(runs), options.steps)))
            with s3_server() if options.store else nullcontext("") as store, two_nodes() as cluster:
                more = ("--store", store) if store else ()
                here = run_killed(recipe, cluster, chance, options.kills - sum(killed[kind] for kind in KINDS), *more)
            same = scores_of(folder / str(runs)) == expected
            killed, runs = killed + here, runs + 1
            print(f"run {runs}: {dict(here)}, {time.monotonic() - begun:.0f} s, equal: {same}", flush=True)
            if not same:
                raise SystemExit("the scores differ from the local engine's")
    print(f"{runs} runs complete and equal to the local engine's; killed: {dict(killed)}")


if __name__ == "__main__":
    main()
