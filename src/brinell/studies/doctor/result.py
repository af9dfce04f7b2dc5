"""The state of an installation, as JSON and as a terminal shows it."""

from collections.abc import Iterator

from brinell.analysis.folder_result import Result


class Package(Result):
    """A package that Brinell needs, or that an extra brings."""

    name: str
    """Its name on the package index."""
    needed: str
    """The oldest version that works; empty for any."""
    version: str | None
    """The installed version; null where there is none."""
    ready: bool
    """True if the installed version is new enough."""
    extra: str | None
    """The extra that brings it; null where Brinell needs it."""


class DeviceFacts(Result):
    """A device that computes."""

    name: str
    """What to write after --device."""
    text: str
    """Model, memory, and whether it has TF32."""


class DoctorResult(Result):
    """What `brinell doctor --json` prints."""

    brinell: str
    """The version of Brinell."""
    python: str
    """The version of Python."""
    platform: str
    """Operating system and processor."""
    packages: list[Package]
    """The packages that Brinell needs, and those of its extras."""
    purposes: dict[str, str]
    """The purpose of each extra."""
    devices: list[DeviceFacts]
    """The devices, the processor first."""
    auto: str
    """The device that --device auto takes."""
    processors: int
    """Processors that this process may use."""
    threads: dict[str, str]
    """Variables that limit threads, those that are set."""
    free_bytes: dict[str, int]
    """Free space in the folder of runs and in that of temporary files."""

    @property
    def exit_code(self) -> int:
        """The exit code of the command: 1 if a package that Brinell needs is missing or too old."""
        return int(not all(package.ready for package in self.packages if package.extra is None))

    def lines(self, *, verbose: bool = False) -> Iterator[str]:
        """The result line by line."""
        yield f"Brinell {self.brinell}, Python {self.python}, {self.platform}"
        needed = [package for package in self.packages if package.extra is None]
        yield f"packages  {', '.join(map(_words, needed))}"
        for package in needed:
            if not package.ready:
                yield f"MISSING   {package.name}>={package.needed}: pip install '{package.name}>={package.needed}'"
        for device in self.devices:
            yield f"device    {device.name}: {device.text}"
        yield f"device    --device auto takes {self.auto}"
        limits = ", ".join(f"{name}={value}" for name, value in self.threads.items()) or "no limit is set"
        yield f"threads   {self.processors} processors; {limits}"
        for folder, free in self.free_bytes.items():
            yield f"disk      {folder}: {free / 2**30:.1f} GiB free"
        for extra, purpose in self.purposes.items():
            brought = [package for package in self.packages if package.extra == extra]
            ready = bool(brought) and all(package.ready for package in brought)
            advice = ", ".join(map(_words, brought)) if ready else f"pip install 'brinell[{extra}]'"
            yield f"{'extra' if ready else 'missing':<9} {extra:<7} {purpose} ({advice})"


def _words(package: Package) -> str:
    return f"{package.name} {package.version or 'is missing'}"
