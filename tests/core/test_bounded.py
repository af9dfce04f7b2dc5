"""What is read of files that others wrote: no devices, nothing outside, and never far more than
they hold.
"""

import os
import resource
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from _refusals import refused
from brinell.core import bounded
from brinell.core.errors import RequestError


def test_a_file_is_read_whole_up_to_the_limit(tmp_path: Path) -> None:
    file = tmp_path / "f"
    file.write_bytes(b"12345")
    assert bounded.read(file, 5) == b"12345"
    with pytest.raises(RequestError, check=refused("core.bounded.read")):
        bounded.read(file, 4)


def test_a_small_file_takes_little_memory_whatever_the_limit(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"12345")
    tracemalloc.start()
    try:
        assert bounded.read(tmp_path / "file", 1 << 34) == b"12345"
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_no_device_pipe_or_folder_is_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", tmp_path, Path("/dev/zero")):
        with pytest.raises(RequestError, check=refused("core.bounded.open_regular")):
            bounded.read(path, 10)
    with pytest.raises(FileNotFoundError):
        bounded.read(tmp_path / "none", 10)


@pytest.mark.parametrize("name", ["/etc/passwd", "../x", "a/../../x", "a\0b"])
def test_what_is_named_lies_inside(tmp_path: Path, name: str) -> None:
    for links in (False, True):
        with pytest.raises(RequestError, match="list names .*(leads out of|no path)"):
            bounded.path_inside(tmp_path, name, "list", links=links)
        assert bounded.path_inside(tmp_path, "a/b", "list", links=links) == tmp_path / "a/b"


def test_links_that_lead_out_are_refused_unless_they_may(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in/link").symlink_to("/etc/passwd")
    with pytest.raises(RequestError, match="leads out"):
        bounded.path_inside(tmp_path / "in", "link", "list")
    assert bounded.path_inside(tmp_path / "in", "link", "list", links=True) == tmp_path / "in/link"


def test_what_becomes_far_more_than_it_is_is_refused() -> None:
    bounded.check_unpacked_size(bounded.IN_MEMORY, 1, "f")
    bounded.check_unpacked_size(bounded.RATIO * 10**9, 10**9, "f")
    with pytest.raises(RequestError, check=refused("core.bounded.check_unpacked_size")):
        bounded.check_unpacked_size(bounded.IN_MEMORY + 1, 1, "f")


def test_a_decoder_gets_no_more_memory_than_its_file_is_worth() -> None:
    before = resource.getrlimit(resource.RLIMIT_AS)
    with (
        pytest.raises(RequestError, match="f has 10 bytes and asks for far more memory"),
        bounded.decoding("f", 10),
    ):
        np.empty(1 << 36, np.uint8)  # more than a heap that earlier tests left grown can give
    with bounded.decoding("f", 1 << 28):
        np.empty(bounded.SPARE + (1 << 28), np.uint8)
    assert resource.getrlimit(resource.RLIMIT_AS) == before


def test_whatever_a_decoder_raises_is_one_line() -> None:
    with (
        pytest.raises(RequestError, match=r"f is damaged or no cake \(too\s+hot\): fetch it again"),
        bounded.decoding("f", 1, "no cake"),
    ):
        raise ValueError("too\nhot")
    with pytest.raises(RequestError, match="^ours$"), bounded.decoding("f", 1):
        raise RequestError("ours")


def test_what_loops_for_ever_is_stopped() -> None:
    with (
        pytest.raises(RequestError, check=refused("core.bounded.time_limit.stop")),
        bounded.time_limit(0.05, "f"),
    ):
        while True:
            pass
    with bounded.time_limit(5, "f"):
        pass


def test_a_key_that_stands_twice_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    file.write_text('{"a": {"b": 1, "c": 2}, "d": 3}')
    assert bounded.json_of(file) == {"a": {"b": 1, "c": 2}, "d": 3}
    for text in ('{"a": 1, "a": 2}', '{"d": [{"a": {"b": 1, "b": 1}}]}'):
        file.write_text(text)
        with pytest.raises(RequestError, check=refused("core.bounded.decoding")):
            bounded.json_of(file)


def test_a_table_of_too_many_keys_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "x.json"
    most = bounded.MOST_KEYS
    for count in (most, most + 1, 3 * most):
        file.write_text('{"a": {' + ", ".join(f'"{i}": 1' for i in range(count)) + "}}")
        if count <= most:
            assert len(bounded.json_of(file)["a"]) == count
        else:
            with pytest.raises(RequestError, match="more than 100,000 keys"):
                bounded.json_of(file)


def test_sizes_are_read_back_from_their_texts() -> None:
    """Property: a number of bytes has three digits and the largest decimal unit that it reaches."""
    factors = {"bytes": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9}
    rng = np.random.default_rng(5)
    for count in [*10 ** rng.uniform(0, 12, 200), 999, 1000, 10**6, 10**9]:
        number, unit = bounded.size(int(count)).split()
        assert float(number) * factors[unit] == pytest.approx(int(count), rel=5.1e-3)
        assert factors[unit] <= int(count) and (unit == "GB" or int(count) < 1000 * factors[unit])
