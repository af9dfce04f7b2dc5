"""Half-written files of a killed process are removed by the next one, and make no folder fail."""

import os
import random
import subprocess
import sys

from brinell.store.files import write_text
from brinell.studies.differences import list_files

NAMES = ("report.html", "a*.json", "[x].csv", "manifest.json", ".hidden", "ä b")


def dead_process():
    """The number of a process that ended."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def test_what_a_killed_process_left_is_removed_by_the_next(tmp_path):
    rng, dead = random.Random(75), dead_process()
    for number in range(12):
        folder = tmp_path / str(number)
        folder.mkdir()
        name, neighbour = rng.sample(NAMES, 2)
        halves = {process: folder / f".{name}.{process}.tmp" for process in (dead, os.getppid())}
        others = [folder / f".{neighbour}.{dead}.tmp", folder / f".{name}.x.tmp", folder / "z.tmp"]
        for file in (*halves.values(), *others):
            file.write_text("half")
        assert list_files(folder) == sorted([others[1].name, "z.tmp"])
        write_text(folder / name, "whole")
        assert not halves[dead].exists() and all(file.exists() for file in others)
        assert halves[os.getppid()].exists(), "another process still writes it"
        assert (folder / name).read_text() == "whole"
