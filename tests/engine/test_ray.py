"""Workers on Ray make the rows of any number of workers; Ray is beside the environment (`make
extras`).
"""

import os
import sys
from importlib.util import find_spec
from types import SimpleNamespace

import numpy as np
import pytest

import brinell
from brinell.engine.ray_pool import RayPool
from brinell.store.run import Run
from brinell.testing.studies import rows_match, rows_of

SETTINGS = {
    "samples": 60,
    "eps": "0:0.1:3",
    "attack": ("apgd-ce?steps=10", "square?steps=40"),
    "progress": False,
}
LOOPBACK = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
"""With 0, Ray listens on loopback alone."""


@pytest.fixture
def counts(monkeypatch):
    """Lets a test say how many workers there are."""
    if find_spec("ray") is None:  # an import comes too late for what the pool sets before its own
        pytest.skip("Ray is not installed")
    count = [1]
    open_workers = RayPool.open_workers

    def some(pool, shared):
        workers = open_workers(pool, shared)
        return workers[: count[0]]

    monkeypatch.setattr(RayPool, "open_workers", some)
    return count


@pytest.mark.nightly
def test_an_audit_and_a_study_on_ray(tmp_path, counts):
    for count in (1, 2):
        counts[0] = count
        brinell.audit("digits-cnn", "digits", out=tmp_path / f"run-{count}", on="ray", **SETTINGS)
        smoothing = {"method": "smoothing?draws=200", "samples": 6, "on": "ray", "progress": False}
        brinell.certify("digits-cnn", "digits", out=tmp_path / f"smooth-{count}", **smoothing)
    import ray

    assert {node["NodeManagerAddress"] for node in ray.nodes()} == {"127.0.0.1"}
    first, second = (Run.open(tmp_path / f"run-{count}").rows for count in (1, 2))
    for name in ("sample_id", "attack", "broken", "margin", "linf", "forwards"):
        assert (
            np.ma.filled(getattr(first, name), -1).tolist()
            == np.ma.filled(getattr(second, name), -1).tolist()
        )
    assert rows_match(rows_of(tmp_path / "smooth-1"), rows_of(tmp_path / "smooth-2"))


def test_what_is_refused(monkeypatch):
    for on in ("slurm", "ray:", "rays", "ray://"):
        with pytest.raises(brinell.BrinellError, match="write ray, ray:auto"):
            RayPool(on, lambda channel: None, device="cpu")
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(brinell.BrinellError, match="Ray is not installed"):
        RayPool("ray", lambda channel: None, device="cpu")


def test_what_does_not_start_is_the_environment(monkeypatch):
    """Ray raises a bare Exception where its processes do not come up in time."""

    def init(**settings):
        raise Exception("The current node timed out during startup.")

    stopped = []
    ray = SimpleNamespace(init=init, shutdown=lambda: stopped.append(True))
    monkeypatch.setitem(sys.modules, "ray", ray)
    for on, code, words in (
        ("ray", 3, "may be too busy"),
        ("ray:ray://nowhere:1", 2, "correct the address"),
    ):
        with pytest.raises(brinell.BrinellError, match=words) as failure:
            RayPool(on, lambda channel: None, device="cpu")
        assert failure.value.exit_code == code
    assert len(stopped) == 2


class Cluster:
    """A stand-in of Ray: resources that the test sets, and actors that remember their options."""

    def __init__(self, **resources):
        self.resources, self.actors, self.settings = resources, [], {}

    def init(self, **settings):
        self.settings = settings

    def cluster_resources(self):
        return self.resources

    def remote(self, **options):
        def start(command, shared):
            self.actors.append(options)
            return len(self.actors)

        return lambda worker: SimpleNamespace(remote=start)


def open_pool(monkeypatch, cluster, on="ray:auto", device="auto"):
    monkeypatch.setitem(sys.modules, "ray", cluster)
    return RayPool(on, lambda channel: None, device=device)


def test_workers_are_those_of_the_cluster_and_not_of_the_driver(monkeypatch):
    """A GPU each where the cluster has any, unless the processor was asked for."""
    rng = np.random.default_rng(0)
    for _ in range(50):
        gpus, cpus = (int(number) for number in rng.integers(0, 9, 2))
        device = str(rng.choice(["auto", "cuda", "cpu"]))
        cluster = Cluster(CPU=float(cpus), **({"GPU": float(gpus)} if gpus else {}))
        pool = open_pool(monkeypatch, cluster, device=device)
        workers = pool.open_workers({})
        on_gpus = device == "cuda" or (device == "auto" and gpus > 0)
        assert len(workers) == max(1, gpus if on_gpus else cpus)
        assert {actor["num_gpus"] for actor in cluster.actors} == {int(on_gpus)}


def test_workers_join_while_the_cluster_grows(monkeypatch):
    cluster = Cluster(CPU=2.0)
    pool = open_pool(monkeypatch, cluster)
    pool.start({})
    assert len(cluster.actors) == 2 and not pool.more_workers()
    cluster.resources = {"CPU": 5.0}
    assert len(pool.more_workers()) == 3 and not pool.more_workers()
    cluster.resources = {"CPU": 1.0}  # a machine is lost: Ray starts its actors elsewhere
    assert not pool.more_workers()


def test_addresses(monkeypatch):
    for on, address in {
        "ray": "local",
        "ray:auto": "auto",
        "ray:10.0.0.1:6379": "10.0.0.1:6379",
        "ray://10.0.0.1:10001": "ray://10.0.0.1:10001",
    }.items():
        cluster = Cluster(CPU=1.0)
        with monkeypatch.context() as context:
            context.setenv(LOOPBACK, "")
            context.delenv(LOOPBACK)
            open_pool(context, cluster, on)
            assert cluster.settings["address"] == address
            is_alone = os.environ.get(LOOPBACK) == "0"
        assert is_alone == (on == "ray"), "a cluster that we start is nobody else's"
