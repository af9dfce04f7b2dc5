"""Ranks of a launcher make the rows of any number of workers; what they send each other is data."""

import pickle  # noqa: TID251  # to refuse it
import socket
import threading
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

import brinell
from _helpers import rows_of
from _workers import arrays_of, audit_command, make_plan, run_plan
from brinell.core.errors import BrinellError, RequestError
from brinell.engine import rank_pool, ranks
from brinell.engine.executor import ServingEnded
from brinell.engine.rank_pool import Crew, RankPool, Session, pack, unpack
from brinell.engine.ranks import Place, find_place, first_host

TOKEN = b"a token of the tests"


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def place_of(rank, size, port, **changes):
    fields = {"local_rank": rank, "address": "127.0.0.1", "attempt": "0", "has_store": False}
    return Place(rank=rank, size=size, port=port, token_file=None, **(fields | changes))


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """Signs of life and their absence within parts of a second."""
    for name, value in {"BEAT": 0.05, "LINGER": 5.0, "POLL": 0.002}.items():
        monkeypatch.setattr(rank_pool, name, value)


class Ranks:
    """Ranks in threads of this process; `command_of` is that of their workers."""

    def __init__(self, size, command_of, **changes):
        self.place = partial(place_of, size=size, port=free_port(), **changes)
        self.command_of, self.warnings, self.errors = command_of, [], {}
        self.crew = Crew(self.place(0), TOKEN, "audit", command_of, self.warnings.append)
        self.threads = [self.join(rank) for rank in range(1, size)]

    def join(self, rank, token=TOKEN, command="audit"):
        def serve():
            try:
                Session(self.place(rank), token, command, self.command_of).serve()
            except BaseException as error:
                self.errors[rank] = error

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        return thread

    def close(self):
        self.crew.close(linger=5.0)
        for thread in self.threads:
            thread.join(10)
            assert not thread.is_alive()


def squares(values):
    """Workers that square arrays and refuse negative numbers."""

    def serve(channel):
        def answer(task):
            if (task["x"] < 0).any():
                raise RequestError("negative")
            return {"y": task["x"] ** 2, "file": b"\x00\xff", "scale": channel.shared["scale"]}

        channel.serve(answer)

    return serve


def answers(pool, tasks):
    pool.start({"scale": 3})
    for key, x in tasks.items():
        pool.submit(key, {"x": x})
    return dict(pool.next() for _ in tasks)


def random_value(rng, depth=0):
    kind = rng.integers(0, 9 if depth < 3 else 7)
    if kind == 7:
        return [random_value(rng, depth + 1) for _ in range(rng.integers(0, 4))]
    if kind == 8:
        return {f"k{i}": random_value(rng, depth + 1) for i in range(rng.integers(0, 4))}
    shape = tuple(rng.integers(0, 4, rng.integers(0, 3)).tolist())
    return [
        None,
        "text ä",
        float(rng.normal()),
        int(rng.integers(-9, 9)),
        rng.bytes(rng.integers(0, 9)),
        rng.normal(size=shape).astype(rng.choice(["f4", "f8"])).T,
        rng.integers(0, 2, shape).astype(bool),
    ][kind]


def is_equal(a, b):
    if isinstance(a, np.ndarray):
        return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(is_equal(a[key], b[key]) for key in a)
    if isinstance(a, list):
        return len(a) == len(b) and all(map(is_equal, a, b))
    return type(a) is type(b) and a == b


def test_messages_are_data(monkeypatch):
    def refuse(*args, **settings):
        raise AssertionError("a pickle")

    for name in ("dump", "dumps", "load", "loads", "Pickler", "Unpickler"):
        monkeypatch.setattr(pickle, name, refuse)
    rng = np.random.default_rng(0)
    for _ in range(100):
        value = random_value(rng)
        assert is_equal(unpack(pack(value)), value)
    for foreign in (object(), np.array([object()]), {1, 2}, ValueError("x")):
        with pytest.raises(Exception):  # noqa: B017  # whoever lays it aside raises its own
            pack({"a": foreign})

    job = Ranks(2, squares)
    tasks = {str(i): rng.normal(size=3) ** 2 for i in range(20)}
    for key, answer in answers(RankPool(job.crew, {}), tasks).items():
        assert is_equal(answer, {"y": tasks[key] ** 2, "file": b"\x00\xff", "scale": 3})
    job.close()


def test_messages_larger_than_the_store_takes():
    job = Ranks(2, squares)
    x = np.random.default_rng(1).uniform(size=5_000_000)
    results = answers(RankPool(job.crew, {}), {"a": x, "b": x[:3]})
    assert is_equal(results["a"]["y"], x**2) and is_equal(results["b"]["y"], x[:3] ** 2)
    job.close()


def test_an_error_of_a_rank_is_that_of_the_command():
    job = Ranks(2, squares)
    with pytest.raises(RequestError, match=r"rank \d: negative"):
        answers(RankPool(job.crew, {}), {"a": np.array([-1.0])})
    # The next call of the same command goes on with the same ranks.
    assert answers(RankPool(job.crew, {}), {"a": np.array([2.0])})["a"]["y"] == [4]
    job.close()


def test_dead_ranks_lose_nothing_and_late_ones_join(monkeypatch):
    """Of two ranks more one dies over its first task, and one gives it back; a third comes late."""
    monkeypatch.setattr(rank_pool, "LOST_AFTER", 1.0)
    job = Ranks(1, lambda values: lambda channel: channel.serve(lambda task: task["x"]))
    dead, leaving = (Session(job.place(rank), TOKEN, "audit", squares) for rank in (1, 2))
    for session in (dead, leaving):
        facts = {"session": session._name, "rank": session._place.rank, **session._facts}
        session._mail.send("driver", kind="hello", **facts)
    pool = RankPool(job.crew, {})
    while len(job.crew._beats) < 3:
        job.crew.collect()
    pool.start({})
    values = {str(i): i / 3 for i in range(40)}
    for key, x in values.items():
        pool.submit(key, {"x": x})

    results = dict(pool.next() for _ in range(5))
    assert {dead._name, leaving._name} <= set(pool._sessions.values())
    leaving._mail.send("driver", kind="bye", session=leaving._name)
    job.threads.append(job.join(3))
    results |= dict(pool.next() for _ in range(35))
    assert results == values
    assert not {dead._name, leaving._name} & pool._members and len(pool._members) >= 1
    job.crew.close(linger=0.5)


def test_who_is_refused(monkeypatch):
    job = Ranks(1, squares)
    job.join(1, token=b"another token of the tests")
    job.join(2, command="gate")
    with monkeypatch.context() as context:
        context.setattr(rank_pool, "VERSION", "9.9")
        stranger = Session(job.place(3), TOKEN, "audit", squares)
    thread = threading.Thread(target=_keep_error(job, 3, stranger.serve), daemon=True)
    thread.start()
    while len(job.errors) < 3:
        job.crew.collect()
    texts = {rank: str(error) for rank, error in job.errors.items()}
    assert "another token than rank 0" in texts[1]
    assert "its command is 'gate', and that of rank 0 is 'audit'" in texts[2]
    assert "its brinell is '9.9'" in texts[3]
    assert all(error.exit_code == 2 for error in job.errors.values())
    assert len(job.warnings) == 3
    assert answers(RankPool(job.crew, {}), {"a": np.array([2.0])})["a"]["y"] == [4]
    # At its end rank 0 waits for none of them.
    job.crew._size = 4
    closing = threading.Thread(target=partial(job.crew.close, linger=600), daemon=True)
    closing.start()
    closing.join(60)
    assert not closing.is_alive()


def _keep_error(job, rank, serve):
    def run():
        try:
            serve()
        except BrinellError as error:
            job.errors[rank] = error

    return run


def test_forged_messages_are_dropped():
    """A stranger without the token can neither answer a task nor change an answer."""
    job = Ranks(1, squares)
    forger = rank_pool.Mail(job.place(1), b"some other token, not ours")
    pool = RankPool(job.crew, {})
    pool.start({"scale": 3})
    pool.submit("a", {"x": np.array([2.0])})
    for number in range(10):
        forger.send(
            "driver", pack({"answer": "forged"}), kind="answer", session="0-x", number=number
        )
        forger._store.queue_push("brinell/0/driver", b"noise")
    assert pool.next()[1]["y"] == [4]
    job.close()


def test_a_port_that_is_taken_and_an_address_elsewhere():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        with pytest.raises(RequestError, match="a free port by MASTER_PORT"):
            rank_pool.Mail(place_of(0, 2, port), TOKEN, hosts=True)
    with pytest.raises(RequestError, match="an address of its machine by MASTER_ADDR"):
        rank_pool.Mail(place_of(0, 2, port, address="192.0.2.1"), TOKEN, hosts=True)


def test_the_store_listens_on_the_launchers_address_alone():
    job = Ranks(1, squares)
    port = job.place(0).port
    with socket.socket() as client:
        client.settimeout(1)
        assert client.connect_ex(("127.0.0.2", port)) != 0, "loopback has other addresses, too"
    job.close()


def test_tokens(tmp_path, monkeypatch):
    place = place_of(0, 2, 1)
    token = rank_pool.read_token(place, tmp_path / "run")
    file = tmp_path / "run" / rank_pool.TOKEN
    assert file.stat().st_mode & 0o777 == 0o600 and len(token) == 64
    assert rank_pool.read_token(place_of(1, 2, 1), tmp_path / "run") == token
    assert rank_pool.read_token(place, tmp_path / "run") == token, "a resumed run keeps it"
    assert rank_pool.read_token(place, tmp_path / "other") != token

    monkeypatch.setattr(rank_pool, "MEETING_TIME", 0.05)
    with pytest.raises(RequestError, match="there is no token"):
        rank_pool.read_token(place_of(1, 2, 1), tmp_path / "unseen")
    with pytest.raises(RequestError, match="name it by --out"):
        rank_pool.read_token(place, None)
    short = tmp_path / "short"
    short.write_text("abc")
    for file in (short, tmp_path / "none"):
        with pytest.raises(RequestError, match="of 32 bytes or more"):
            rank_pool.read_token(replace(place, token_file=file), None)


@pytest.fixture(scope="module")
def by_one(tmp_path_factory):
    return _audit(tmp_path_factory.mktemp("one"), 1)


def _audit(folder, size):
    job = Ranks(size, lambda values: audit_command(make_plan, folder / "worker"))
    finished = run_plan(folder / "run", RankPool(job.crew, {}))
    job.close()
    return finished


@pytest.mark.parametrize("size", [2, 3])
def test_rows_and_inputs_are_those_of_one_rank(by_one, tmp_path, size):
    finished = _audit(tmp_path, size)
    expected = rows_of(by_one.rows, without=("seconds",))
    assert rows_of(finished.rows, without=("seconds",)) == expected
    assert arrays_of(finished) == arrays_of(by_one) and arrays_of(by_one)


def test_places():
    """Each launcher's variables tell rank, size and the address of rank 0."""
    rng = np.random.default_rng(7)
    for _ in range(100):
        launcher = ranks.LAUNCHERS[rng.integers(len(ranks.LAUNCHERS))]
        size = int(rng.integers(1, 9))
        rank = int(rng.integers(0, size))
        environment = {launcher.rank: str(rank), launcher.size: str(size), "MASTER_ADDR": "head"}
        if has_port := rng.random() < 0.5:
            environment["MASTER_PORT"] = "1234"
        for name in launcher.job:
            environment[name] = str(rng.integers(1e6))
        place = find_place(None if size > 1 else "ranks", environment)
        assert (place.rank, place.size, place.address) == (rank, size, "head")
        assert place == find_place("ranks", environment)
        assert place.port == 1234 if has_port else 1024 < place.port < 30_000
        if size == 1:
            assert find_place(None, environment) is None, "one process shares with nobody"
        assert find_place("local", environment) is find_place("ray", environment) is None
    assert find_place(None, {}) is None
    assert find_place(None, {"JOB_COMPLETION_INDEX": "1"}) is None, "a job of unlike pods"


def test_variables_that_do_not_fit():
    for environment, words in {
        (("RANK", "x"), ("WORLD_SIZE", "2")): "RANK is 'x'",
        (("RANK", "2"), ("WORLD_SIZE", "2")): "RANK is 2, and WORLD_SIZE is 2",
        (("RANK", "0"), ("WORLD_SIZE", "2")): "set MASTER_ADDR",
        (
            ("RANK", "0"),
            ("WORLD_SIZE", "2"),
            ("MASTER_ADDR", "a"),
            ("MASTER_PORT", "b"),
        ): "MASTER_PORT",
    }.items():
        with pytest.raises(RequestError, match=words):
            find_place(None, dict(environment))
    with pytest.raises(RequestError, match="no launcher started this process"):
        find_place("ranks", {})
    with pytest.raises(brinell.BrinellError, match="that a launcher starts"):
        brinell.audit("digits-cnn", "digits", on="ranks", samples=1, progress=False)


def test_the_first_host_of_slurm():
    rng = np.random.default_rng(8)
    for _ in range(100):
        start = int(rng.integers(1, 50))
        prefix = str(rng.choice(["gpu", "node-a", "rack1-n"]))
        width = int(rng.integers(1, 4))
        first = f"{start:0{width}d}"
        tails = ["", "-99", ",120-130", "-60,70"]
        nodes = f"{prefix}[{first}{rng.choice(tails)}]{rng.choice(['', ',login1', ',x[1-2]'])}"
        assert first_host(nodes) == f"{prefix}{first}"
    assert first_host("alone") == "alone" and first_host("a1,a2") == "a1"
    assert ServingEnded.__mro__[1] is BaseException  # no handler of a command's errors takes it
