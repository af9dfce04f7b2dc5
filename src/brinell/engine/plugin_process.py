"""The child process of a plug-in that does not come with Brinell: it is confined before anything else is imported.

`python -m brinell.engine.plugin_process`, started by `isolation.process`. The process may not write files, gain privileges or
dump its memory. Where Linux has Landlock (5.13 or newer), it may not make or remove files or look into other processes either,
from 6.7 on it may not use TCP, and from 6.12 on it may not send signals to processes outside.
"""

import ctypes
import os
import resource
import signal
import struct
import sys
import tempfile
from contextlib import suppress

PR_SET_PDEATHSIG, PR_SET_NO_NEW_PRIVS = 1, 38
"""Of Linux's prctl.h."""
CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446
"""System calls of Landlock, the same on all architectures."""
WRITE_FILE, TRUNCATE = 1 << 1, 1 << 14
CHANGES = WRITE_FILE | sum(1 << bit for bit in range(4, 13))
"""Rights to write, remove and make files."""
TCP = 0b11
"""Rights to bind and to connect."""
SCOPES = 0b11
"""Signals, and sockets without a file, to processes outside."""


def confine() -> None:
    """Remove rights and resources that a plug-in does not need from this process, and end it when its parent ends."""
    tempfile.gettempdir()  # some libraries ask for it when they are imported, and it is found by writing
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if sys.platform.startswith("linux"):
        with suppress(OSError, AttributeError):
            libc = ctypes.CDLL(None)
            libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
            libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
            _restrict_files(libc)


def _restrict_files(libc: ctypes.CDLL) -> None:
    """Forbid changes to all files but the null device, by Landlock, where the kernel has it."""
    version = libc.syscall(CREATE_RULESET, None, 0, 1)
    if version < 1:
        return
    rights = CHANGES | (1 << 13 if version >= 2 else 0) | (TRUNCATE if version >= 3 else 0)
    attributes = struct.pack("QQQ", rights, TCP, SCOPES)[: 24 if version >= 6 else 16 if version >= 4 else 8]
    rules = libc.syscall(CREATE_RULESET, attributes, len(attributes), 0)
    null = os.open(os.devnull, os.O_PATH)
    libc.syscall(ADD_RULE, rules, 1, struct.pack("=Qi", WRITE_FILE, null), 0)
    libc.syscall(RESTRICT_SELF, rules, 0)
    os.close(null)
    os.close(rules)


if __name__ == "__main__":
    confine()
    from brinell.engine.plugin_server import serve

    serve()
