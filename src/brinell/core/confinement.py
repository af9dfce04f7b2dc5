"""Limits of a process of Linux that runs a stranger's code: it ends with the one that started it,
and writes below one folder alone, where the system has Landlock (5.13 or newer).

Landlock also keeps it from reaching into the memory of processes that gave up less.
"""

import ctypes
import os
import signal
import struct
import sys
from pathlib import Path

SET_DEATH_SIGNAL, SET_NO_NEW_RIGHTS = 1, 38
"""Of Linux's prctl.h."""
CREATE_RULES, ADD_RULE, RESTRICT = 444, 445, 446
"""Landlock's system calls, which have the same numbers on all architectures."""
VERSION_FLAG, BELOW_PATH = 1, 1
WRITE_FILE = 0x2
"""The right to write into a file that exists."""
WRITING = {1: 0x1FF2, 2: 0x3FF2, 3: 0x7FF2}
"""The rights by which files are written, made, removed and linked, by the version of Landlock; the
last holds for later ones."""


def confine(folder: Path) -> bool:
    """Give up rights for good; True if nothing outside the folder can be written any more."""
    if not sys.platform.startswith("linux"):
        return False

    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(SET_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)
    # Without attributes this call makes no rules: it answers Landlock's version, -1 without it.
    version = libc.syscall(CREATE_RULES, None, ctypes.c_size_t(0), VERSION_FLAG)
    if version < 1:
        return False
    rights = WRITING[min(version, max(WRITING))]
    attributes = struct.pack("<Q", rights)
    rules = libc.syscall(CREATE_RULES, attributes, ctypes.c_size_t(len(attributes)), 0)

    for place in (folder, Path(os.devnull)):
        descriptor = os.open(place, os.O_RDONLY)
        allowed = rights if place == folder else rights & WRITE_FILE  # a device is written, no more
        rule = struct.pack("<Qi", allowed, descriptor)
        libc.syscall(ADD_RULE, rules, BELOW_PATH, rule, 0)
        os.close(descriptor)
    libc.prctl(SET_NO_NEW_RIGHTS, 1, 0, 0, 0)
    return bool(libc.syscall(RESTRICT, rules, 0) == 0)
