"""What a folder says that no verification finds again, in one table.

All else comes out of a repetition.

`brinell verify`, the pages, the JSON of results and docs/reference/trust.md read these tables. Keys
are patterns of `studies.differences.Claims`, values the reasons.
"""

from collections.abc import Mapping

TIMES, MACHINE = "wall times and dates", "the versions and the machine"
CLAIMED: Mapping[str, str] = {
    "manifest.json:seconds": TIMES,
    "manifest.json:*.seconds": TIMES,
    "manifest.json:created": TIMES,
    "manifest.json:finished": TIMES,
    "*.parquet:seconds": TIMES,
    "manifest.json:command": "the command line that repeats it",
    "manifest.json:brinell": MACHINE,
    "manifest.json:revision": MACHINE,
    "manifest.json:versions": MACHINE,
    "manifest.json:hardware": MACHINE,
    "manifest.json:made_here": "the mark of whoever made it",
}
"""Of every folder."""
RUN_CLAIMED: Mapping[str, str] = {
    "manifest.json:remarks": "remarks of attacks, which may be about samples that were not drawn",
    "manifest.json:traffic": "requests to a server",
    "manifest.json:probes": "the cost of checks, which a resumed run pays more than once",
}
"""Of the run of an audit besides."""


def claimed_names(patterns: Mapping[str, str]) -> list[str]:
    """The keys, columns and files that patterns claim, sorted."""
    return sorted({pattern.rpartition(":")[2].rpartition(".")[2] for pattern in patterns})
