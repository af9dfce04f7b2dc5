"""A user's file imports what lies beside it, and nobody else sees that."""

import random
import sys
from pathlib import Path

import pytest
import torch

from brinell import plugins
from brinell.core.domain import Domain
from brinell.core.errors import RequestError
from brinell.core.siblings import kept_path
from brinell.core.user_files import hash_code, import_file, module_name
from brinell.models.torch import TorchModule

FORMS = {
    "import layers\nvalue = lambda: layers.VALUE": "layers.py",
    "from layers import VALUE\nvalue = lambda: VALUE": "layers.py",
    "from layers import *\nvalue = lambda: VALUE": "layers.py",
    "import layers.conv\nvalue = lambda: layers.conv.VALUE": "layers/conv.py",
    "import layers.conv as c\nvalue = lambda: c.VALUE": "layers/conv.py",
    "from layers import conv\nvalue = lambda: conv.VALUE": "layers/conv.py",
    "from layers.conv import VALUE\nvalue = lambda: VALUE": "layers/conv.py",
    "from .layers import VALUE\nvalue = lambda: VALUE": "layers.py",
    "from . import layers\nvalue = lambda: layers.VALUE": "layers.py",
    "from .layers.conv import VALUE\nvalue = lambda: VALUE": "layers/conv.py",
    "from ..layers import VALUE\nvalue = lambda: VALUE": "../layers.py",
    "def value():\n    import layers\n    return layers.VALUE": "layers.py",
    "def value():\n    from .layers import VALUE\n    return VALUE": "layers.py",
    "import importlib\nvalue = lambda: importlib.import_module('layers').VALUE": "layers.py",
    "from importlib import import_module\nvalue = lambda: import_module('.layers', __package__).VALUE": "layers.py",
    "value = lambda: __import__('layers').VALUE": "layers.py",
    "import sys, os\nsys.path.insert(0, os.path.join(os.path.dirname(__file__), 'lib'))\n"
    "import layers\nvalue = lambda: layers.VALUE": "lib/layers.py",
    "import sys\nfrom pathlib import Path\ndef value():\n    sys.path.append(str(Path(__file__).parents[1]))\n"
    "    import layers\n    return layers.VALUE": "../layers.py",
    "from pathlib import Path\nvalue = lambda: int(Path(__file__).with_name('layers.py').read_text().split()[-1])": "layers.py",
}


def write(folder: Path, text: str, sibling: str, value: int, init: bool) -> Path:
    """A file and its sibling; with `init` each folder of packages has an `__init__.py`."""
    file, place = folder / "mine.py", folder / sibling
    place.parent.mkdir(parents=True, exist_ok=True)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    place.write_text(f"from dataclasses import dataclass\n@dataclass\nclass Block:\n    width: int = 1\nVALUE = {value}\n")
    if init:
        for parent in {place.resolve().parent, file.parent}:
            (parent / "__init__.py").touch()
    return file


@pytest.mark.parametrize("part", range(4))
def test_every_form_of_import_finds_what_lies_beside_its_own_file(part: int, tmp_path: Path, subtests: pytest.Subtests) -> None:
    for number, text in enumerate(list(FORMS)[part::4]):
        for init in (False, True):
            with subtests.test(text=text, init=init):
                check_import(text, init, tmp_path / f"{number}{init}")


def check_import(text: str, init: bool, tmp_path: Path) -> None:
    """Two files import siblings of the same name, and each finds its own."""
    values = random.Random(text).sample(range(1000), 2)
    path, names = list(sys.path), {name for name in sys.modules if not name.startswith("brinell_scratch_")}
    files = [write(tmp_path / f"f{n}" / "a" / "b", text, FORMS[text], value, init) for n, value in enumerate(values)]
    scopes = [import_file(file) for file in files]
    for order in (1, -1):  # a later import does not see the other folder
        for scope, value in list(zip(scopes, values, strict=True))[::order]:
            with kept_path():
                assert scope.value() == value
    assert sys.path == path
    added = {name for name in sys.modules if not name.startswith("brinell_scratch_")} - names
    assert not [name for name in added if name.partition(".")[0] in ("layers", "lib", "mine")]
    assert [scope.__name__ for scope in scopes] == [module_name(file) for file in files]


def test_siblings_import_siblings_and_the_file_itself(tmp_path: Path) -> None:
    (tmp_path / "nets").mkdir()
    (tmp_path / "nets" / "__init__.py").write_text("from .conv import width\n")
    (tmp_path / "nets" / "conv.py").write_text(
        "import config\ndef width():\n    import mine\n    return config.WIDTH + mine.EXTRA\n"
    )
    (tmp_path / "config.py").write_text("WIDTH = 5\n")
    (tmp_path / "mine.py").write_text("EXTRA = 2\nfrom nets import width\n")
    assert import_file(tmp_path / "mine.py").width() == 7


def test_what_is_installed_wins_over_folders_and_over_the_file_s_own_name(tmp_path: Path) -> None:
    (tmp_path / "numpy").mkdir()
    (tmp_path / "random.py").write_text("raise RuntimeError\n")
    (tmp_path / "torch.py").write_text("import torch, numpy, random\none = torch.ones(1)\nnumbers = numpy.ones(1)\n")
    assert import_file(tmp_path / "torch.py").one == 1


def test_a_sibling_runs_anew_for_each_opening(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text("import state\ndef count():\n    state.calls.append(1)\n    return len(state.calls)\n")
    (tmp_path / "state.py").write_text("calls = []\n")
    assert [import_file(file).count() for _ in range(2)] == [1, 1]


MISSING = [
    ("import nowhere_at_all", ["nowhere_at_all", "pip install nowhere_at_all", "or put nowhere_at_all.py into"]),
    ("import nowhere.at.all", ["imports nowhere,", "put nowhere.py into"]),
    ("import layers.conv", ["layers.conv", "layers has no such part"]),
    ("from layers import Missing", ["cannot import name 'Missing' from 'layers'"]),
    ("from .nowhere import x", ["nowhere", "put nowhere.py into"]),
    ("from . import nowhere", ["cannot import name 'nowhere' from 'its folder'"]),
]


def test_a_missing_module_is_named_with_what_to_do(tmp_path: Path, subtests: pytest.Subtests) -> None:
    for number, (text, words) in enumerate(MISSING):
        for late in (False, True):
            folder = tmp_path / f"{number}{late}"
            folder.mkdir()
            file = folder / "mine.py"
            (folder / "layers.py").write_text("VALUE = 1\n")
            file.write_text(f"def net():\n    {text}\n" if late else f"{text}\ndef net(): pass\n")
            with subtests.test(text=text, late=late):
                with pytest.raises(RequestError) as error:
                    TorchModule(path=f"{file}:net")(Domain(kind="vector", shape=(4,)))
                assert all(word in str(error.value) for word in words)
                assert "brinell_scratch" not in str(error.value)


def test_the_digest_of_a_model_covers_the_files_beside_it(tmp_path: Path) -> None:
    file, ops = tmp_path / "mine.py", tmp_path / "pkg" / "ops.py"
    file.write_text("from torch import nn\nimport layers\ndef net():\n    return nn.Sequential(nn.Flatten(), layers.Block())\n")
    (tmp_path / "layers.py").write_text(
        "import torch\nfrom torch import nn\nclass Block(nn.Module):\n    def forward(self, x):\n"
        "        from pkg import ops\n        return ops.scale(x)\n"
    )
    ops.parent.mkdir()
    (tmp_path / "unrelated.py").write_text("a = 1\n")
    ops.write_text("def scale(x):\n    return 2 * x\n")
    domain = Domain(kind="vector", shape=(4,))
    model = TorchModule(path=f"{file}:net")(domain)
    assert torch.equal(model.predict(torch.ones(2, 4)), 2 * torch.ones(2, 4))
    (tmp_path / "unrelated.py").write_text("a = 2\n")
    assert TorchModule(path=f"{file}:net")(domain).digest() == model.digest()
    ops.write_text("def scale(x):\n    return 3.5 * x  # another\n")
    changed = TorchModule(path=f"{file}:net")(domain)
    assert changed.digest() != model.digest()
    assert torch.equal(changed.predict(torch.ones(2, 4)), 3.5 * torch.ones(2, 4))


ATTACK = """
from dataclasses import dataclass
{line}

@dataclass(frozen=True, kw_only=True)
class Shift:
    \"\"\"A shift.\"\"\"
    domains = frozenset({{"image", "vector"}})
    access = 1

    def __call__(self, x, severity, rng, draw):
        return x + offset(x)

    def draws(self, shape):
        return 1
"""


def test_a_plugin_imports_what_lies_beside_it(tmp_path: Path) -> None:
    (tmp_path / "lib").mkdir()
    for place in (tmp_path, tmp_path / "lib"):
        (place / "helper.py").write_text("def offset(x):\n    return 0.25\n")
    file, line = tmp_path / "shift.py", "from lib.helper import offset\nfrom .helper import offset\nfrom helper import offset"
    file.write_text(ATTACK.format(line=line))
    plugin = plugins.build("distortion", f"{file}:Shift", {})
    assert plugins.source_of(type(plugin)) == hash_code(file, 8)


def test_a_plugin_names_a_missing_module(tmp_path: Path) -> None:
    (tmp_path / "shift.py").write_text(ATTACK.format(line="from nowhere_at_all import offset"))
    with pytest.raises(
        RequestError, match="imports nowhere_at_all, which is neither in its folder .* nor installed: pip install"
    ):
        plugins.build("distortion", f"{tmp_path / 'shift.py'}:Shift", {})
