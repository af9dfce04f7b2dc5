"""The state of an installation, as JSON and as a terminal shows it."""

from collections.abc import Iterator

from brinell.analysis.folder_result import Result


class PackageResult(Result):
    """A package that Brinell needs, or that an extra brings."""

    name: str
    """Its name on the package index."""
    needed: str
    """The oldest version that works; empty for any."""
    version: str | None
    """The installed version; null where there is none."""
    ready: bool
    """True if the installed version is new enough."""


class ExtraResult(Result):
    """An extra of Brinell."""

    name: str
    """What to write in brackets."""
    purpose: str
    """What it is for."""
    packages: list[PackageResult]
    """The packages that it brings."""
    ready: bool
    """True if all are installed."""


class KindResult(Result):
    """A kind of model or data, and what it needs."""

    kind: str
    """model or dataset."""
    name: str
    """How a spec begins."""
    missing: list[str]
    """Extras to install for it; empty if it is ready."""


class DeviceResult(Result):
    """A device that computes."""

    name: str
    """What to write after --device."""
    text: str
    """Model and memory."""
    free_bytes: int | None = None
    """Free memory of a GPU; null where it is not known."""
    tf32: bool | None = None
    """True if a GPU can multiply float32 numbers in TF32, which --precision tf32 allows; null where it is not known."""


class DiskResult(Result):
    """A folder and its free space."""

    purpose: str
    """The content of the place."""
    folder: str
    """The path."""
    exists: bool
    """True if the folder is there."""
    free_bytes: int | None
    """Free space; null where the folder is not there."""
    content: list[str]
    """For shared data, the folders that it holds."""


class DoctorResult(Result):
    """What `brinell doctor --json` prints."""

    brinell: str
    """The version of Brinell."""
    python: str
    """The version of Python."""
    platform: str
    """Operating system and processor."""
    packages: list[PackageResult]
    """The packages that Brinell needs."""
    extras: list[ExtraResult]
    """The extras, and what each is for."""
    kinds: list[KindResult]
    """Kinds of models and data."""
    devices: list[DeviceResult]
    """The devices, the processor first."""
    auto: str
    """The device that --device auto takes."""
    processors: int
    """Processors that this process may use."""
    threads: dict[str, str | None]
    """Variables that limit threads; null for one that is not set."""
    disks: list[DiskResult]
    """Folders of runs, of temporary files and of shared data."""

    @property
    def exit_code(self) -> int:
        """The exit code of the command: 1 if a package that Brinell needs is missing or too old."""
        return int(not all(package.ready for package in self.packages))

    def lines(self, *, verbose: bool = False) -> Iterator[str]:
        """The result line by line."""
        yield f"Brinell {self.brinell}, Python {self.python}, {self.platform}"
        yield f"packages  {', '.join(map(_package, self.packages))}"
        for package in self.packages:
            if not package.ready:
                yield f"MISSING   {package.name}>={package.needed}: pip install '{package.name}>={package.needed}'"
        for device in self.devices:
            free = "" if device.free_bytes is None else f", {device.free_bytes / 2**30:.0f} GiB free"
            yield f"device    {device.name}: {device.text}{free}{TF32.get(device.tf32, '')}"
        yield f"device    --device auto takes {self.auto}"
        limits = ", ".join(f"{name}={value}" for name, value in self.threads.items() if value) or "no limit is set"
        yield f"threads   {self.processors} processors; {limits}"
        for disk in self.disks:
            space = f"{disk.free_bytes / 2**30:.1f} GiB free" if disk.free_bytes is not None else "not there"
            content = f"; holds {', '.join(disk.content)}" if disk.content else ""
            yield f"disk      {disk.purpose}: {disk.folder}, {space}{content}"
        width = max((len(extra.name) for extra in self.extras), default=0)
        for extra in self.extras:
            what = ", ".join(map(_package, extra.packages)) if extra.ready else f"pip install 'brinell[{extra.name}]'"
            yield f"{'extra' if extra.ready else 'missing':<9} {extra.name:<{width}} {extra.purpose} ({what})"
        for kind, noun in (("model", "models"), ("dataset", "data")):
            entries = [entry for entry in self.kinds if entry.kind == kind]
            yield f"{noun:<9} ready: {', '.join(entry.name for entry in entries if not entry.missing)}"
            for entry in entries:
                if entry.missing:
                    yield f"{noun:<9} {entry.name} needs pip install 'brinell[{','.join(entry.missing)}]'"


TF32: dict[bool | None, str] = {True: "; TF32 is off in runs, --precision tf32 switches it on", False: "; it has no TF32"}
"""The end of a GPU's line, by whether it has TF32."""


def _package(package: PackageResult) -> str:
    return f"{package.name} {package.version or 'is missing'}"
