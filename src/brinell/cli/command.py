"""How a record of the register becomes a command: its options are the fields of its request, beside those that all share."""

import inspect
import shlex
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, get_args, get_origin

import typer

from brinell.cli.options import LOUDNESS, SHARD, TRUST, Json, Quiet, Verbose, say, show, show_json
from brinell.core.errors import RequestError, Spelling, StoppedError, option
from brinell.engine.request import JOINED, BaseRequest
from brinell.studies.kit import Call, Output, Study

KEPT = "run.toml"
"""The file of settings in a folder of results, with which --resume goes on."""


@dataclass
class Command:
    """One command line of a study."""

    study: Study
    values: dict[str, Any]
    """The settings that were given, by the names of their fields."""
    options: dict[str, Any]
    """The options that belong to no request, likewise."""
    file: Path | None
    out: Path | None
    resume: bool
    json: bool
    trust: Path | None
    shard: str | None
    again: str = field(default="", init=False)
    """What to type to go on with what was interrupted; empty until there is something to go on with."""

    def carry_out(self) -> int:
        """Run the study and print its answer. Returns the exit code; where it stops midway, says how to go on."""
        try:
            return self._answer(self._run())
        except KeyboardInterrupt:
            if not self.again:
                raise
            say(f"interrupted; what was computed is kept: go on with {self.again}")
            return 130
        except StoppedError as error:
            say(f"error: {error}" + (f" ({self.again})" if self.again and error.resumable else ""))
            return error.exit_code

    def _run(self) -> Any:
        from brinell.engine.toml import checked
        from brinell.runners.progress import LiveProgress

        study, request = self.study, self._request()
        options = None if study.options is None else checked(study.options, self.options)
        shard = None
        if self.shard is not None:
            from brinell.runners.meeting import Shard

            shard = Shard.asked(self.shard, self.out)
        with LiveProgress(quiet=LOUDNESS.quiet, verbose=LOUDNESS.verbose, spelling=Spelling.TERMINAL) as progress:
            call = Call(
                study=study,
                request=request,
                options=options,
                command=command_of(request, study),
                progress=progress,
                out=self.out,
                resume=self.resume,
                shard=shard,
                trust=self.trust,
                begin=lambda path: self._begin(request, path),
            )
            return study.resolve(study.run)(call)

    def _answer(self, result: Any) -> int:
        if self.json:
            show_json(result)
        else:
            for line in self.study.resolve(self.study.lines)(result):
                show(line)
        return 1 if self.study.passes and not result.passed else 0

    def _begin(self, request: BaseRequest, path: Path) -> None:
        """From here on an interruption says how to go on."""
        if self.study.resume:
            from brinell.store.shared import address_of

            kept = self.study.output is Output.FOLDER
            words = [f"brinell {self.study.verb}" if kept else command_of(request, self.study)]
            words += [] if self.shard is None else ["--shard", self.shard]
            self.again = " ".join([*words, "--resume --out", shlex.quote(address_of(path) or str(path))])

    def _request(self) -> BaseRequest:
        """The request: what the file says, the options winning.

        Raises:
            RequestError: no such file, an unknown key or a value out of range.
        """
        from brinell.engine import toml, trust

        with self._settings() as file:
            values = toml.load(file) if file else {}
            if file:
                trust.check_file(file, values, self.study.request, self.values, self.trust)
        return toml.checked(self.study.request, values | self.values)

    @contextmanager
    def _settings(self) -> Iterator[Path | None]:
        """The file of settings: the one named, or on --resume the one that the folder keeps, copied from a store."""
        if self.resume and self.out is None:
            raise RequestError(f"{option('resume')} needs {option('out')}: the folder of the run to go on with")
        if self.file is not None or not (self.resume and self.out is not None and self.study.output is Output.FOLDER):
            yield self.file
            return
        from brinell.store.shared import address_of, open_store

        content = None if address_of(self.out) is None else open_store(self.out).read(KEPT)
        if content is not None:
            with tempfile.TemporaryDirectory(prefix="brinell-") as held:
                (Path(held) / KEPT).write_bytes(content)
                yield Path(held) / KEPT
        elif (self.out / KEPT).exists():
            yield self.out / KEPT
        elif not self.values:
            raise RequestError(
                f"there is no run in {self.out} to go on with: it has no {KEPT}; leave out {option('resume')} to begin one"
            )
        else:
            yield None


def function_of(study: Study, help: str) -> Callable[..., int]:
    """The function that typer makes the command of."""
    takes_file = study.output is not Output.NOTHING and not study.positional
    joined = {name for name, one in study.request.model_fields.items() if JOINED in one.metadata}

    def command(**words: Any) -> int:
        file, out, resume, json, trust, shard = (
            words.pop(name, None) for name in ("file", "out", "resume", "json", "trust", "shard")
        )
        LOUDNESS.quiet |= words.pop("quiet")
        LOUDNESS.verbose |= words.pop("verbose")
        first = next(iter(study.positional), "")
        named = words.get(first, "")
        alone = named[0] if isinstance(named, list) and len(named) == 1 else named
        if study.output is not Output.NOTHING and str(alone).endswith(".toml"):
            file = Path(alone)
            del words[first]
        values = {key: tuple(value) if isinstance(value, list) else value for key, value in words.items()}
        values = {key: value for key, value in values.items() if value not in (None, ())}
        values |= {key: ", ".join(values[key]) for key in joined if key in values}
        options = {key: values.pop(key) for key in list(values) if key not in study.request.model_fields}
        return Command(study, values, options, file, out, bool(resume), bool(json), trust, shard).carry_out()

    parameters = [*(_file() if takes_file else ()), *_settings(study), *_shared(study)]
    command.__doc__ = help
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return command


def command_of(request: BaseRequest, study: Study) -> str:
    """The command line that repeats a request: every setting that differs from its default."""
    words, last = ["brinell", study.verb], []
    for key, one in type(request).model_fields.items():
        value = getattr(request, key)
        if key in study.positional:
            last += [str(part) for part in (value if isinstance(value, tuple) else (value,)) if part is not None]
        elif isinstance(value, bool) and value != one.default:
            words.append(f"--{'' if value else 'no-'}{key.replace('_', '-')}")
        elif value != one.default:
            for part in value if isinstance(value, tuple) else (value,):
                words += [f"--{key.replace('_', '-')}", str(part)]
    return shlex.join(words + last)


def _file() -> Iterator[inspect.Parameter]:
    """The file of settings, where nothing else comes first."""
    help = f"A file of settings, such as the {KEPT} of an earlier run."
    yield _parameter("file", Path | None, typer.Argument(metavar="[FILE.toml]", help=help), None)


def _settings(study: Study) -> list[inspect.Parameter]:
    """The options of a study's own, those without a name first."""
    found = {key: _option(key, one, study) for key, one in study.fields().items()}
    first = [found.pop(key) for key in study.positional]
    return [*first, *found.values()]


def _shared(study: Study) -> Iterator[inspect.Parameter]:
    """The options that commands have in common."""
    if study.output is Output.FILE:
        yield _parameter("out", Path, typer.Option(help=study.out), ...)
    elif study.output is Output.FOLDER:
        yield _parameter("out", Path | None, typer.Option(help=study.out), None)
    if study.resume:
        yield _parameter("resume", bool, typer.Option("--resume", help=study.resume), False)
    if study.shards:
        yield _parameter("shard", str | None, typer.Option(metavar="K/N", help=SHARD), None)
    if study.foreign or (study.resume and study.output is Output.FOLDER):
        yield _parameter("trust", Path | None, typer.Option(help=TRUST), None)
    for name, hint in {"json": Json, "quiet": Quiet, "verbose": Verbose}.items():
        yield inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=hint, default=False)


def _option(name: str, one: Any, study: Study) -> inspect.Parameter:
    """The option that a field becomes. Its default is none, so that what a file says is not overruled."""
    positional = name in study.positional
    kind, many = _plain(one.annotation)
    many = many or JOINED in one.metadata
    help = " ".join(str(one.description or "").split())
    if many:
        help += " May be repeated."
    if not one.is_required() and one.default not in (None, (), "") and one.default is not False:
        value = ", ".join(map(str, one.default)) if many else f"{one.default:g}" if kind is float else one.default
        help += f" Default: {value}."
    if positional and not many and study.output is not Output.NOTHING:
        help += " What ends with .toml is a file of settings."
    elif one.is_required() and not positional:
        help += " It must be given."
    flag = [f"--{name.replace('_', '-')}"] if one.default is False else []  # and no --no-... beside it
    metavar = name.upper() if one.is_required() or many or not positional else f"[{name.upper()}]"
    info: Any = typer.Argument(metavar=metavar, help=help) if positional else typer.Option(*flag, help=help)
    hint: Any = list[kind] if many else kind  # type: ignore[valid-type]
    needed = positional and one.is_required()
    return _parameter(name, hint if needed else hint | None, info, ... if needed else None)


def _plain(hint: Any) -> tuple[type, bool]:
    """The type that the command line reads a field as, and whether the option may be repeated."""
    if get_origin(hint) is Annotated:
        return _plain(get_args(hint)[0])
    if get_origin(hint) is tuple:
        return _plain(get_args(hint)[0])[0], True
    kinds = [one for one in get_args(hint) or (hint,) if one is not NoneType]
    if len(kinds) == 1 and get_origin(kinds[0]) in (Annotated, tuple):
        return _plain(kinds[0])
    return (kinds[0] if len(kinds) == 1 and kinds[0] in (int, float, bool) else str), False


def _parameter(name: str, hint: Any, info: Any, default: Any) -> inspect.Parameter:
    value = inspect.Parameter.empty if default is ... else default
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=Annotated[hint, info], default=value)


def epilog(examples: Iterable[str]) -> str:
    """Examples as the help of a command shows them, one a line."""
    # \b keeps the lines of a paragraph as they are.
    return "\b\n" + "\n".join(["Examples:", *(f"  {line}" for line in examples)])
