"""What a newcomer gets wrong: each refusal gives a line, and whoever follows it gets on.

A kind makes files in a fresh folder, with numbers drawn at random, and the words of a command that
is refused. Its pattern finds the line in the message, and what follows it is carried out.
"""

import re
import shlex
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from brinell.cli import run as cli

MODEL = """
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        torch.manual_seed(0)
        self.body = nn.Sequential(nn.Flatten(), nn.Linear(64, int(width)), nn.ReLU())
        self.head = nn.Linear(int(width), 4)

    def forward(self, x):
        return self.head(self.body(x))


class Begin(nn.Module):
    def __init__(self, network, line=""):
        super().__init__()
        self.network, self.line = network, line

    def forward(self, x):
        scope = {"x": x, "torch": torch}
        exec(self.line or "pass", scope)
        return self.network(scope["x"])


def net():
    return Net()


def needs(width):
    return Net(width)


def kind():
    return Net


def two():
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 2))


def any_size(channels=3):
    return nn.Sequential(nn.AdaptiveAvgPool2d(8), nn.Flatten(), nn.Linear(64 * int(channels), 4))


def side(size, channels=1):
    size, channels = int(size), int(channels)
    torch.manual_seed(size)
    return nn.Sequential(
        nn.Conv2d(channels, 2, 3), nn.Flatten(), nn.Linear(2 * (size - 2) ** 2, 4)
    )


def begins(size, channels, line):
    return Begin(side(size, channels), line)


def columns():
    return nn.Linear(2, 2)
"""


class Shop:
    """The folder of a newcomer: arrays, a model, and ways to spoil them."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng
        self.x = rng.uniform(size=(24, 1, 8, 8)).astype(np.float32)
        self.y = np.arange(24) % 4
        self.save("data")
        with open("model.py", "w") as file:
            file.write(MODEL)

    def save(self, name: str, **arrays: Any) -> str:
        np.savez(f"{name}.npz", **({"x": self.x, "y": self.y} | arrays))
        return f"{name}.npz"

    def spoilt(self, word: str) -> str:
        """A word without one letter in its middle."""
        place = int(self.rng.integers(1, len(word) - 1))
        return word[:place] + word[place + 1 :]


def audit(data: str = "data.npz", model: str = "model.py:net", *more: str) -> list[str]:
    words = ["audit", "--data", data, "--model", model, "--samples", "6", "--attack", "fgsm"]
    return [*words, *(() if "--eps" in more else ("--eps", "0.05")), *more]


class Kind(NamedTuple):
    """A kind of refusal."""

    make: Callable[[Shop], list[str]]
    pattern: str
    follow: Callable[[Shop, re.Match[str]], list[str]]


def with_code(shop: Shop, code: str, **names: Any) -> None:
    """Carry out a line of Python from a message."""
    scope = {"numpy": np, "x": shop.x, "y": shop.y, "inputs": shop.x, "labels": shop.y}
    exec(code, scope | names)


def save_arrays(shop: Shop, match: re.Match[str]) -> list[str]:
    with_code(shop, match[1])
    return audit("FILE.npz")


def written(name: str, *make: Any) -> Callable[[Shop], list[str]]:
    """A command about a file that is written by functions of the shop."""

    def command(shop: Shop) -> list[str]:
        make[0](shop)
        return audit(name)

    return command


def pack(shop: Shop) -> None:
    with zipfile.ZipFile("data.zip", "w") as archive:
        archive.write("data.npz")


def unpack(shop: Shop, match: re.Match[str]) -> list[str]:
    with zipfile.ZipFile("data.zip") as archive:
        archive.extractall("unpacked")
    return audit("unpacked/data.npz")


def save_picture(shop: Shop) -> None:
    Image.fromarray((shop.x[0, 0] * 255).astype("uint8")).save("picture.png")


def sort_pictures(shop: Shop, match: re.Match[str]) -> list[str]:
    for name in "abcd":
        (folder := Path("pictures", name)).mkdir(parents=True)
        for number in range(3):
            pixels = shop.rng.integers(0, 256, (12, 12, 3)).astype("uint8")
            Image.fromarray(pixels).save(folder / f"{number}.png")
    return audit("pictures", "model.py:any_size")


def csv(name: str, label: str, hole: bool = False) -> Callable[[Shop], None]:
    def make(shop: Shop) -> None:
        rows = [f"{i % 7},{i % 5},{'ab'[i % 2]}" for i in range(30)]
        rows[4] = ",3,a" if hole else rows[4]
        with open(name, "w") as file:
            file.write("\n".join([f"width,height,{label}", *rows]))

    return make


def table(shop: Shop, match: re.Match[str]) -> list[str]:
    column = match[1].split(", ")[-1]
    return audit(f"table:flowers.csv?label={column}", "model.py:columns")


def network() -> nn.Module:
    scope: dict[str, Any] = {"__name__": "model"}
    exec(MODEL, scope)
    return scope["net"]()


def script(shop: Shop) -> None:
    sample = torch.zeros(1, 1, 8, 8)
    torch.jit.trace(network(), sample).save("program.pt")


def append_to_model(shop: Shop, match: re.Match[str]) -> list[str]:
    with open("model.py", "a") as file:
        file.write(f"\n\ndef loaded():\n    {match[1]}\n")
    return audit(model="model.py:loaded")


def forest(shop: Shop) -> Any:
    from sklearn.ensemble import RandomForestClassifier

    return RandomForestClassifier(3, random_state=0).fit(shop.x.reshape(24, -1), shop.y)


def save_forest(shop: Shop, *_: Any) -> list[str]:
    import skops.io

    skops.io.dump(forest(shop), "FILE.skops")
    return forest_audit("FILE.skops")


def forest_audit(model: str) -> list[str]:
    return ["audit", "--data", "data.npz", "--model", model, "--samples", "4", "--eps", "0.05"] + [
        "--attack",
        "square?steps=5",
    ]


def typo(setting: str, word: str, *more: str) -> Kind:
    """A word of a command that is misspelt, and what the message proposes."""

    def make(shop: Shop) -> list[str]:
        return audit(*("data.npz", "model.py:net"), *more, setting, shop.spoilt(word))

    def follow(shop: Shop, match: re.Match[str]) -> list[str]:
        return audit("data.npz", "model.py:net", *more, setting, match[1])

    return Kind(make, r"did you mean '([^']+)'", follow)


def other_shape(shop: Shop) -> list[str]:
    shop.size, shop.channels = int(shop.rng.choice([28, 32, 64])), int(shop.rng.choice([1, 3]))
    return audit(model=f"model.py:side?args=size={shop.size},channels={shop.channels}")


def begin_with(shop: Shop, match: re.Match[str]) -> list[str]:
    with open("model.py", "a") as file:
        file.write(
            f"\n\ndef mended():\n    return begins({shop.size}, {shop.channels}, {match[1]!r})\n"
        )
    return audit(model="model.py:mended")


KINDS: dict[str, Kind] = {
    "pictures of bytes as floats": Kind(
        lambda shop: audit(shop.save("bytes", x=np.round(shop.x * 254) + 1.0)),
        r"write (npz:\S+)",
        lambda shop, match: audit(match[1]),
    ),
    "pictures from -1 to 1": Kind(
        lambda shop: audit(shop.save("centred", x=shop.x * 2 - 1)),
        r"write (npz:\S+)",
        lambda shop, match: audit(match[1]),
    ),
    "normalised pictures": Kind(
        lambda shop: audit(shop.save("normalised", x=(shop.x - 0.4) / shop.rng.uniform(0.1, 0.3))),
        r"write (npz:\S+)",
        lambda shop, match: audit(match[1]),
    ),
    "an array alone": Kind(
        written("x.npy", lambda shop: np.save("x.npy", shop.x)),
        r"by (numpy\.savez\(.*?\))",
        save_arrays,
    ),
    "tensors": Kind(
        written("x.pt", lambda shop: torch.save({"x": shop.x}, "x.pt")),
        r"by (numpy\.savez\(.*?\))",
        save_arrays,
    ),
    "a packed file": Kind(written("data.zip", pack), "unpack it", unpack),
    "one picture": Kind(
        written("picture.png", save_picture), "folder that holds a folder for each", sort_pictures
    ),
    "labels from 1 on": Kind(
        lambda shop: audit(shop.save("shifted", y=shop.y + 1)),
        r"\((y - 1)\)",
        lambda shop, match: audit(shop.save("zero", y=eval(match[1], {"y": shop.y + 1}))),
    ),
    "several labels": Kind(
        lambda shop: audit(shop.save("multi", y=shop.rng.integers(0, 2, (24, 4)))),
        "its column .* as the class",
        lambda shop, match: audit(shop.save("column", y=shop.y % 2), "model.py:two"),
    ),
    "arrays of other names": Kind(
        lambda shop: np.savez("odd.npz", data=shop.x, target=shop.y) or audit("odd.npz"),
        r"it holds (\w+), (\w+): name one by the option x=",
        lambda shop, match: audit(f"odd.npz?x={match[1]}&y={match[2]}"),
    ),
    "not a number": Kind(
        lambda shop: (
            audit(shop.save("holes", x=np.where(shop.x > 0.999, np.nan, shop.x)))
            if (shop.x > 0.999).any()
            else audit(shop.save("holes", x=np.where(shop.x == shop.x.max(), np.nan, shop.x)))
        ),
        r"(keep = .*\))",
        lambda shop, match: (
            with_code(shop, match[1], **{name: np.load("holes.npz")[name] for name in "xy"})
            or audit("FILE.npz")
        ),
    ),
    "no labels": Kind(
        lambda shop: np.savez("bare.npz", x=shop.x) or audit("bare.npz"),
        "save them too, as y",
        lambda shop, match: audit(shop.save("bare")),
    ),
    "channels first or last": Kind(
        lambda shop: audit(
            shop.save("odd", x=shop.rng.random((24, 3, 9, 3)).astype("f")), "model.py:any_size"
        ),
        "give (layout=first)",
        lambda shop, match: audit(f"odd.npz?{match[1]}", "model.py:any_size"),
    ),
    "a path with a typo": Kind(
        lambda shop: audit(f"{shop.spoilt('data')}.npz"),
        r"did you mean '([^']+)'",
        lambda shop, match: audit(match[1]),
    ),
    "an option with a typo": Kind(
        lambda shop: audit(f"{shop.save('bytes', x=shop.x * 100)}?{shop.spoilt('divide')}=100"),
        r"did you mean '([^']+)'",
        lambda shop, match: audit(f"bytes.npz?{match[1]}=100"),
    ),
    "a table without its label": Kind(
        written("flowers.csv", csv("flowers.csv", "species")),
        r"it has ([\w, ]+): name that of the classes",
        table,
    ),
    "a label with a typo": Kind(
        lambda shop: (
            csv("flowers.csv", "species")(shop)
            or audit(f"flowers.csv?label={shop.spoilt('species')}")
        ),
        r"it has ([\w, ]+): name that of the classes",
        table,
    ),
    "a table with holes": Kind(
        lambda shop: (
            csv("flowers.csv", "label", hole=True)(shop) or audit("flowers.csv", "model.py:columns")
        ),
        "by (missing=skip)",
        lambda shop, match: audit(f"flowers.csv?{match[1]}", "model.py:columns"),
    ),
    "weights without a network": Kind(
        lambda shop: torch.save(network().state_dict(), "w.pt") or audit(model="w.pt"),
        r"write model\.py:FACTORY(\?weights=\S+),",
        lambda shop, match: audit(model=f"model.py:net{match[1]}"),
    ),
    "a program of torch": Kind(
        lambda shop: script(shop) or audit(model="program.pt"),
        r"model\.py (return torch\.jit\.load\('program\.pt'\))",
        append_to_model,
    ),
    "a pickled classifier": Kind(
        lambda shop: Path("forest.pkl").write_bytes(b"\x80\x04.") and audit(model="forest.pkl"),
        r"skops\.io\.dump and name FILE\.skops",
        lambda shop, match: trusted(save_forest(shop)),
    ),
    "types that skops does not trust": Kind(
        save_forest,
        r"write (FILE\.skops\?trusted=\S+)",
        lambda shop, match: forest_audit(match[1]),
    ),
    "a file without a function": Kind(
        lambda shop: audit(model="model.py"),
        r"it has .*?\b(net)\b",
        lambda shop, match: audit(model=f"model.py:{match[1]}"),
    ),
    "a function with a typo": Kind(
        lambda shop: audit(model="model.py:ntt"),
        r"did you mean '([^']+)'",
        lambda shop, match: audit(model=f"model.py:{match[1]}"),
    ),
    "a function that needs an argument": Kind(
        lambda shop: audit(model="model.py:needs"),
        r"write (model\.py:needs\?args=width=)VALUE",
        lambda shop, match: audit(model=f"{match[1]}{shop.rng.integers(3, 30)}"),
    ),
    "a function that returns a class": Kind(
        lambda shop: audit(model="model.py:kind"),
        r"write (model\.py:Net)",
        lambda shop, match: audit(model=match[1]),
    ),
    "pictures of another shape": Kind(other_shape, r"let the model begin with (.*)$", begin_with),
    "eps in bytes": Kind(
        lambda shop: audit("data.npz", "model.py:net", "--eps", str(shop.rng.integers(2, 17))),
        r"did you mean (\d+/255)",
        lambda shop, match: audit("data.npz", "model.py:net", "--eps", match[1]),
    ),
    "a distance with a typo": typo("--norm", "linf"),
    "an attack with a typo": typo("--attack", "apgd-ce"),
    "an attack's option with a typo": Kind(
        lambda shop: audit("data.npz", "model.py:net", "--attack", "pgd?step=3"),
        r"did you mean '([^']+)'",
        lambda shop, match: audit("data.npz", "model.py:net", "--attack", f"pgd?{match[1]}=3"),
    ),
    "no samples": Kind(
        lambda shop: ["audit", "--data", "data.npz", "--model", "model.py:net", "--samples", "0"],
        "must be a whole number above 0, (all)",
        lambda shop, match: audit("data.npz", "model.py:net", "--samples", match[1]),
    ),
    "a GPU that is not there": Kind(
        lambda shop: audit("data.npz", "model.py:net", "--device", "cuda:7"),
        "choose (cpu)",
        lambda shop, match: audit("data.npz", "model.py:net", "--device", match[1]),
    ),
    "a target class with a typo": Kind(
        lambda shop: audit("data.npz", "model.py:net", "--targeted", "last"),
        "write (least-likely) or random",
        lambda shop, match: audit("data.npz", "model.py:net", "--targeted", match[1]),
    ),
    "a flag with a typo": Kind(
        lambda shop: audit("data.npz", "model.py:net", "--norms", "l2"),
        r"Possible options: (--norm)\b",
        lambda shop, match: audit("data.npz", "model.py:net", match[1], "l2"),
    ),
    "a command with a typo": Kind(
        lambda shop: [shop.spoilt("audit"), *audit()[1:]],
        r"did you mean '([^']+)'",
        lambda shop, match: [match[1], *audit()[1:]],
    ),
    "a folder that is not empty": Kind(
        lambda shop: (
            Path("taken").mkdir()
            or Path("taken/a").write_text("a")
            and audit("data.npz", "model.py:net", "--out", "taken")
        ),
        "choose another (--out)",
        lambda shop, match: audit("data.npz", "model.py:net", match[1], "fresh"),
    ),
    "a run that is there": Kind(
        lambda shop: (
            [cli(audit("data.npz", "model.py:net", "--out", "run"))]
            and audit("data.npz", "model.py:net", "--out", "run")
        ),
        r"(--resume)|another (--out)",
        lambda shop, match: audit("data.npz", "model.py:net", "--out", "other"),
    ),
    "a run to resume that nobody began": Kind(
        lambda shop: ["audit", "--resume", "--out", "nothing"],
        "leave out --resume",
        lambda shop, match: audit("data.npz", "model.py:net", "--out", "nothing"),
    ),
    "a gate without a condition": Kind(
        lambda shop: [cli(audit("data.npz", "model.py:net", "--out", "run"))] and ["gate", "run"],
        "a gate needs a condition: (--clean)",
        lambda shop, match: (
            ["gate", "run", match[1], "0", "--without-checks"] + ["--allow", "clean-accuracy"]
        ),
    ),
    "a name of a model with a typo": Kind(
        lambda shop: (
            ["audit", "--model", shop.spoilt("digits-cnn"), "--samples", "4"]
            + ["--attack", "fgsm", "--eps", "0.05"]
        ),
        r"did you mean '([^']+)'",
        lambda shop, match: (
            ["audit", "--model", match[1], "--samples", "4", "--attack", "fgsm"] + ["--eps", "0.05"]
        ),
    ),
}


def trusted(words: list[str]) -> list[str]:
    words[words.index("--model") + 1] += "?trusted=sklearn.tree._tree.Tree"
    return words


GROUPS = 10


@pytest.mark.filterwarnings("ignore:.torch.jit:FutureWarning")
@pytest.mark.parametrize("group", range(GROUPS))
def test_the_line_of_a_refusal_works(group, tmp_path, monkeypatch, capsys, subtests):
    assert len(KINDS) >= 40
    for name in list(KINDS)[group::GROUPS]:
        (folder := tmp_path / name.replace(" ", "-")).mkdir()
        monkeypatch.chdir(folder)
        with subtests.test(name):
            follow_line(name, capsys)


def follow_line(name: str, capsys: Any) -> None:
    """Make a mistake, and do what its refusal says."""
    kind, shop = KINDS[name], Shop(np.random.default_rng(sum(map(ord, name))))
    words = kind.make(shop)
    capsys.readouterr()
    assert cli(words) == 2, words

    message = capsys.readouterr().err
    match = re.search(kind.pattern, message, re.MULTILINE)
    assert match is not None, message
    following = kind.follow(shop, match)
    assert cli(following) == 0, (message, following, capsys.readouterr().err)


def test_mistakes_about_data_and_model_are_listed_at_once(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    shop = Shop(np.random.default_rng(8))
    save_forest(shop)
    for number in range(4):
        shop.save(f"large{number}", x=np.round(shop.x * 254) + 1.0)
        data = f"{shop.spoilt(f'large{number}')}.npz"
        model, rest = (
            ("FILE.skops", ["--attack", "square?steps=5", "--eps", "0.05", "--samples", "4"]),
            (f"model.py:{shop.spoilt('any_size')}?args=channels=1", audit()[5:]),
        )[number % 2]
        assert cli(["audit", "--data", data, "--model", model, *rest]) == 2
        message = capsys.readouterr().err
        # The path, then what the file holds, and the model at the same time.
        for text in ("3 mistakes", "there is no file", "?divide=255", "did you mean 'large"):
            assert text in message, message
        line = re.search(r"type brinell (.*)$", message, re.MULTILINE)
        assert line is not None and cli(shlex.split(line[1])) == 0, message

    shop.save("shifted", x=shop.x * 255, y=shop.y + 1)
    assert cli(audit("shifted.npz")) == 2
    message = capsys.readouterr().err
    assert "2 mistakes" in message and "take 1 from labels" in message and "type" not in message
