"""A process that gave up its rights writes below its folder alone."""

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import ctypes, sys
from pathlib import Path
from brinell.core.confinement import CREATE_RULES, VERSION_FLAG, confine

own, other = map(Path, sys.argv[1:])
has_landlock = ctypes.CDLL(None).syscall(CREATE_RULES, None, ctypes.c_size_t(0), VERSION_FLAG) > 0
is_confined = confine(own)
(own / "written").write_text("inside")
(own / "folder").mkdir()
Path("/dev/null").write_text("nowhere")
try:
    (other / "written").write_text("outside")
except PermissionError:
    pass
print(int(has_landlock), int(is_confined), int((other / "written").exists()))
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the limits are Linux's")
def test_a_confined_process_writes_below_its_folder_alone(tmp_path: Path) -> None:
    """Property: it is confined exactly if the system can, and then nothing outside is written,
    while its own folder and the empty device stay open.
    """
    folders = [tmp_path / name for name in ("own", "other")]
    for folder in folders:
        folder.mkdir()
    command = [sys.executable, "-c", PROGRAM, *map(str, folders)]
    output = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
    has_landlock, is_confined, wrote_outside = map(int, output.split())
    assert is_confined == has_landlock
    assert wrote_outside != is_confined
    assert (folders[0] / "written").read_text() == "inside"
