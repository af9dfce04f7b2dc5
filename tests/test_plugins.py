"""Names, classes and instances of plugins."""

import dataclasses
import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from brinell import plugins
from brinell.attacks.pgd import PGD
from brinell.core.errors import RequestError

PLUGIN_SOURCE = '''
from dataclasses import dataclass

@dataclass(frozen=True, kw_only=True)
class Mine:
    """A plugin of one's own."""
    steps: int = 3
    rate: float = 0.5
    on: bool = True
    path: str = ""
    label: int | None = None

    def __post_init__(self):
        if self.steps < 1:
            raise ValueError(f"steps is {self.steps}, and must be at least 1")

def function():
    pass
'''


@pytest.fixture
def plugin_file(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(PLUGIN_SOURCE)
    return f"{file}:Mine"


def test_parse(subtests):
    rows = [
        ("digits", ("digits", "", {})),
        ("npz:data.npz", ("npz", "data.npz", {})),
        ("npz:C:/data.npz", ("npz", "C:/data.npz", {})),
        ("npz:a.npz?layout=first&low=0", ("npz", "a.npz", {"layout": "first", "low": "0"})),
        ("pgd?steps=5", ("pgd", "", {"steps": "5"})),
        ("torch:f.py:net?weights=a%20b.pt", ("torch", "f.py:net", {"weights": "a%20b.pt"})),
        ("torch:f.py:net?args=a=1,b=2", ("torch", "f.py:net", {"args": "a=1,b=2"})),
        ("pgd?loss=", ("pgd", "", {"loss": ""})),
        ("mine.py:Mine", ("mine.py:Mine", "", {})),
        ("some.module:Mine?x=1", ("some.module:Mine", "", {"x": "1"})),
        ("/a/b.py:Mine", ("/a/b.py:Mine", "", {})),
        ("http://host/v2/models/m", ("http", "http://host/v2/models/m", {})),
    ]
    for text, expected in rows:
        with subtests.test(text=text):
            assert plugins.parse(text) == expected


def test_parse_refuses(subtests):
    for text, message in [
        ("", "names nothing"),
        (":x", "names nothing"),
        ("pgd?steps", "not key=value"),
    ]:
        with subtests.test(text=text):
            with pytest.raises(RequestError, match=message):
                plugins.parse(text)


def test_listing_imports_nothing():
    program = (
        "import sys; from brinell import plugins; [plugins.names(kind) for kind "
        "in plugins.FOLDERS];"
        "print(sorted(m for m in sys.modules if m == 'torch' or "
        "m.startswith(tuple(p + '.' for p in plugins.FOLDERS.values()))))"
    )
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert answer.stdout == "[]\n", answer.stdout + answer.stderr


def test_names(subtests):
    for kind in plugins.FOLDERS:
        with subtests.test(kind=kind):
            names = plugins.names(kind)
            assert names == sorted(set(names)) and names
            assert not any(name.startswith(("_", "-")) or "_" in name for name in names)


def test_load_refuses(subtests):
    rows = [
        (
            "attack",
            "pdg",
            "there is no attack 'pdg', did you mean 'pgd'\\? `brinell plugins` lists them",
        ),
        ("attack", "xyzzyxyzzy", "there is no attack 'xyzzyxyzzy'; `brinell plugins` lists them"),
        ("model", "digits_cnn", "there is no model 'digits_cnn', did you mean 'digits-cnn'"),
        ("dataset", "_files", "there is no dataset '_files'"),
        ("attack", "/nowhere.py:X", "there is no file /nowhere.py"),
        ("attack", "no.such.module:X", "module 'no.such.module' cannot be imported"),
        ("attack", "json:NoSuch", "has no class 'NoSuch'|there is no attack"),
        ("attack", "./file.py", "names no class: write file.py:Class or module:Class"),
    ]
    for kind, name, message in rows:
        with subtests.test(kind=kind):
            with pytest.raises(RequestError, match=message):
                plugins.load(kind, name)


def test_a_file_of_ones_own(plugin_file):
    plugin = plugins.load("attack", plugin_file)
    assert plugin().steps == 3
    with pytest.raises(RequestError, match="has no class 'Mien', did you mean 'Mine'"):
        plugins.load("attack", plugin_file.replace(":Mine", ":Mien"))
    with pytest.raises(RequestError, match="has no class 'function'"):
        plugins.load("attack", plugin_file.replace(":Mine", ":function"))


def test_a_module_of_ones_own():
    assert plugins.load("attack", "brinell.attacks.pgd:PGD") is PGD


def test_build_converts_text(plugin_file):
    options = {"steps": "7", "rate": "1e-3", "on": "false", "path": "07", "label": "4"}
    attack = plugins.build("attack", plugin_file, options)
    assert dataclasses.asdict(attack) == {
        "steps": 7,
        "rate": 0.001,
        "on": False,
        "path": "07",
        "label": 4,
    }


def test_build_takes_values_of_the_right_type(plugin_file):
    assert plugins.build("attack", plugin_file, {"steps": 7, "rate": 1.5, "on": False}).rate == 1.5


def test_build_refuses(plugin_file, subtests):
    rows = [
        (
            {"step": 1},
            "has no option 'step', did you mean 'steps'.; it has: label, on, path, rate, steps",
        ),
        ({"xyzzy": 1}, "has no option 'xyzzy'; it has"),
        ({"steps": "many"}, "option steps of attack .* is 'many': input should be a valid integer"),
        ({"steps": "2.5"}, "is '2.5'"),
        ({"steps": 2.5}, "is 2.5"),
        ({"steps": True}, "is True"),
        ({"rate": "fast"}, "is 'fast'"),
        ({"on": "perhaps"}, "is 'perhaps'"),
        ({"path": 3}, "is 3"),
        ({"steps": "0"}, "steps is 0, and must be at least 1"),
    ]
    for options, message in rows:
        with subtests.test(options=options):
            with pytest.raises(RequestError, match=message) as error:
                plugins.build("attack", plugin_file, options)
            assert "\n" not in str(error.value)


def test_entry_points(monkeypatch):
    """A plugin of an installed package is found by name; two of one name are an error."""
    entries = [
        EntryPoint(name="mine", value="brinell.attacks.fgsm:FGSM", group="brinell.attack"),
        EntryPoint(name="pgd", value="other.package:PGD", group="brinell.attack"),
    ]
    monkeypatch.setattr(plugins, "_installed", lambda kind: entries if kind == "attack" else [])
    assert "mine" in plugins.names("attack") and "mine" not in plugins.names("model")
    assert plugins.load("attack", "mine").__name__ == "FGSM"
    with pytest.raises(
        RequestError,
        match="two attack plugins are called 'pgd' .other.package:PGD, brinell.attacks.: uninstall",
    ):
        plugins.load("attack", "pgd")


def test_settings_name_the_file_of_a_plugin_that_they_hold(tmp_path):
    """The recorded settings of a user's distortion change with its file."""
    file, example = (
        tmp_path / "glare.py",
        Path(__file__).parent.parent / "examples" / "distortions" / "glare.py",
    )
    sources = []
    for text in (example.read_text(), example.read_text() + "# another\n"):
        file.write_text(text)
        attack = plugins.build("attack", "rlab", {"distortions": f"{file}:Glare"})
        (distortion_settings,) = plugins.settings_of(attack)["distortions"]
        assert distortion_settings["plugin"] == "Glare"
        sources.append(distortion_settings["source"])
    assert sources[0] != sources[1]
