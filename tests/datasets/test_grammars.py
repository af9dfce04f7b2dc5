"""Texts made by a grammar, with a fresh seed: each is read, or refused in one line (queries:
tests/bounds/test_queries.py).
"""

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from brinell.core import bounded
from brinell.core.errors import BrinellError
from brinell.datasets.table import TabularFile
from brinell.datasets.wfdb import Wfdb
from brinell.engine import toml
from brinell.engine.request import Request
from brinell.store.run import LAYOUT

NUMBERS = (
    "0",
    "1",
    "-1",
    "3",
    "360",
    "1e308",
    "1e309",
    "nan",
    "inf",
    "9" * 400,
    "١٢",
    "1_0",
    "",
    "2147483648",
    "1/0",
    "8/255",
)
TEXTS = (
    "",
    "a",
    "\x00",
    "\x1b[2J",
    "../../etc/passwd",
    "/dev/zero",
    "é" * 300,
    "\u202e",
    "=cmd()",
    "$(touch x)",
    "\n",
    "%s%n",
    "{0}",
)
TEXTS += (
    "pgd?steps=" + "9" * 50,
    "fgsm?x=" + "[" * 2000,
    "pgd?" + "steps=1&" * 2000,
    "fgsm+" * 500,
    "0:1:999999999999",
    "file\u2028",
)


def check_texts(
    make: Callable[[random.Random], str], use: Callable[[str], Any], count: int
) -> None:
    seed = random.randrange(2**32)
    for number in range(count):
        text = make(random.Random(seed + number))
        try:
            use(text)
        except BrinellError as error:
            line = str(error)
            assert line.strip() and "\n" not in line, (seed + number, line)
        except Exception as error:
            raise AssertionError(f"seed {seed + number}: {text[:300]!r}") from error


def json_value(rng: random.Random, depth: int = 0) -> Any:
    if depth < 4 and rng.random() < 0.4:
        return [json_value(rng, depth + 1) for _ in range(rng.randrange(4))]
    if depth < 4 and rng.random() < 0.3:
        return {
            rng.choice(("name", "digest", "files", *TEXTS)): json_value(rng, depth + 1)
            for _ in range(rng.randrange(4))
        }
    return rng.choice((*TEXTS, 0, -1, 10**12, 10**400, 0.5, 1e308, float("nan"), True, None))


def test_settings(tmp_path: Path) -> None:
    def value(rng: random.Random, depth: int = 0) -> str:
        if depth < 4 and rng.random() < 0.3:
            return f"[{', '.join(value(rng, depth + 1) for _ in range(rng.randrange(4)))}]"
        if depth < 4 and rng.random() < 0.1:
            return f"{{a = {value(rng, depth + 1)}}}"
        return rng.choice(
            (rng.choice(NUMBERS), json.dumps(rng.choice(TEXTS)), "true", "1979-05-27", "'''a", '"a')
        )

    def make(rng: random.Random) -> str:
        if rng.random() < 0.1:
            return rng.choice(
                (
                    "a" + ".a" * 3000 + " = 1",
                    "x = " + "[" * 9999,
                    "[" + "a." * 3000 + "a]",
                    "eps = " + "9" * 9999,
                )
            )
        return "\n".join(
            f"{key} = {value(rng)}" for key in rng.sample([*Request.model_fields, "x", "a.b"], 4)
        )

    def use(text: str) -> None:
        (tmp_path / "s.toml").write_text(text)
        toml.parse_request(Request, toml.load(tmp_path / "s.toml"))

    check_texts(make, use, 60)


def test_headers_of_records(tmp_path: Path) -> None:
    pytest.importorskip("wfdb")
    (tmp_path / "a.dat").write_bytes(bytes(2600))
    (tmp_path / "a.atr").write_bytes(b"\x12\x04" * 50 + b"\x00\x00")

    def make(rng: random.Random) -> str:
        def odd(right: str) -> str:
            return right if rng.random() < 0.8 else rng.choice((*NUMBERS, *TEXTS))

        record = [odd("a"), odd("1"), odd("360"), odd("650"), odd("")]
        signal = [
            odd("a.dat"),
            odd("16"),
            odd("200(0)/mV"),
            odd("11"),
            odd("0"),
            odd("0"),
            odd("0"),
            odd("0"),
            odd("MLII"),
        ]
        return f"{' '.join(record)}\n{' '.join(signal)}\n" * rng.choice((1, 1, 1, 2))

    def use(text: str) -> None:
        (tmp_path / "a.hea").write_text(text)
        Wfdb(path=str(tmp_path))().load([0])

    check_texts(make, use, 40)


def test_tables(tmp_path: Path) -> None:
    def make(rng: random.Random) -> str:
        def cell(right: str) -> str:
            return (
                right
                if rng.random() < 0.9
                else rng.choice((*NUMBERS, *TEXTS, '"', '"a', "1;2", "\r"))
            )

        rows = [
            ",".join((cell(f"{n / 7:.3f}"), cell(f"w{n % 3}"), cell(str(n % 2))))
            for n in range(rng.choice((0, 2, 8)))
        ]
        return "\n".join([",".join((cell("a"), cell("b"), cell("label"))), *rows]) + cell("\n")

    def use(text: str) -> None:
        (tmp_path / "t.csv").write_text(text, newline="")
        TabularFile(path=str(tmp_path / "t.csv"))().load([0])

    check_texts(make, use, 60)


def test_manifests(audit_run: Path, tmp_path: Path) -> None:
    manifest = json.loads((audit_run / "manifest.json").read_text())

    def make(rng: random.Random) -> str:
        if rng.random() < 0.1:
            return rng.choice(
                ("[" * 10**5, '{"a":' * 10**5, "9" * 10**5, '{"verb": "audit"', "", '"a"', "[]")
            )
        whole = content = json.loads(json.dumps(manifest))
        while True:
            place = content
            key = rng.choice([*place] if isinstance(place, dict) else range(len(place)))
            content = place[key]
            if not isinstance(content, dict | list) or not content or rng.random() < 0.2:
                break
        place[key] = json_value(rng)
        return json.dumps(whole)

    def use(text: str) -> None:
        (tmp_path / "manifest.json").write_text(text)
        LAYOUT.read(tmp_path)

    check_texts(make, use, 60)


def test_what_is_larger_than_its_kind_is_refused_before_it_is_read(tmp_path: Path) -> None:
    for name, most, use in (
        ("manifest.json", bounded.MOST_JSON, LAYOUT.read),
        ("s.toml", bounded.MOST_SETTINGS, lambda folder: toml.load(folder / "s.toml")),
    ):
        with (tmp_path / name).open("wb") as file:
            file.truncate(most + 1)
        with pytest.raises(BrinellError, match="larger than"):
            use(tmp_path)
        (tmp_path / name).unlink()
        (tmp_path / name).symlink_to("/dev/zero")
        with pytest.raises(BrinellError, match="no regular file"):
            use(tmp_path)
        (tmp_path / name).unlink()
