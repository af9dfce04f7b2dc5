"""How a verb becomes a command: its options are the fields of its requests, and the helper here handles what all verbs share.

A verb is a function that takes an `Asked` (and options that belong to no request, as further parameters) and returns the exit
code. Its docstring is the help of the command.
"""

import inspect
import shlex
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, get_args, get_origin

import typer
from pydantic import BaseModel

from brinell.cli.options import LOUDNESS, TRUST, Json, Quiet, Verbose, answer, say
from brinell.core.errors import RequestError, Spelling, StoppedError, option
from brinell.engine.request import JOINED, BaseRequest
from brinell.store.shared import address_of, open_store

if TYPE_CHECKING:
    from brinell.runners.progress import LiveProgress

Kind = TypeVar("Kind", bound=BaseRequest)
Made = TypeVar("Made")
FRESH = "The folder of the results. Default: a fresh one under runs/."


@dataclass
class Asked:
    """What a command line asked for, and how it is answered."""

    verb: "Verb"
    given: dict[str, Any]
    """The values of the options that were given, by the names of their fields."""
    file: Path | None
    out: Path | None
    resume: bool
    json: bool
    trust: Path | None = None
    """The folder whose files and addresses the person trusts."""
    again: str = ""
    """What to type to go on with what was interrupted; empty until there is something to go on with."""

    def request(self, kind: type[Kind], given: Mapping[str, Any] | None = None) -> Kind:
        """The request: what the file says, the options (or `given` in their place) winning.

        Raises:
            RequestError: no such file, an unknown key or a value out of range.
        """
        from brinell.engine import toml, trust

        options = dict(self.given if given is None else given)
        with self._settings() as file:
            values = toml.load(file) if file else {}
            if file:
                trust.check_file(file, values, options, self.trust)
        return toml.checked(kind, values | options)

    @contextmanager
    def _settings(self) -> Iterator[Path | None]:
        """The file of settings: the one named, or on --resume the one that the output folder keeps, copied from a store."""
        if self.resume and self.out is None:
            raise RequestError(f"{option('resume')} needs {option('out')}: the folder of the run to go on with")
        kept = self.verb.kept
        if self.file is not None or not (self.resume and self.out is not None and kept):
            yield self.file
            return
        content = None if address_of(self.out) is None else open_store(self.out).read(kept)
        if content is not None:
            with tempfile.TemporaryDirectory(prefix="brinell-") as held:
                (Path(held) / kept).write_bytes(content)
                yield Path(held) / kept
        elif (self.out / kept).exists():
            yield self.out / kept
        elif not self.given:
            raise RequestError(
                f"there is no run in {self.out} to go on with: it has no {kept}; leave out {option('resume')} to begin one"
            )
        else:
            yield None

    @property
    def path(self) -> Path:
        """The --out of a verb that must have one."""
        assert self.out is not None, "typer refuses the command line without it"
        return self.out

    def carry_out(
        self,
        make: Callable[..., Made],
        plan: Any,
        what: str,
        *flags: str,
        watch: Callable[[Any], Any] = lambda progress: progress,
    ) -> Made:
        """What `make`, one of the functions of `brinell.api` for this, makes of a plan, with progress; `flags` as of `begin`.

        `watch` makes of the live progress the one that is told.
        """
        folder = self.folder(plan.request, what, *flags)
        with self.progress() as progress:
            return make(plan, folder, watch(progress), command=self.command(plan.request), resume=self.resume)

    def progress(self) -> "LiveProgress":
        """Live progress on standard error, as loud as the command line asks for."""
        from brinell.runners.progress import LiveProgress

        return LiveProgress(quiet=LOUDNESS.quiet, verbose=LOUDNESS.verbose, spelling=Spelling.TERMINAL)

    def folder(self, request: Any, what: str, *flags: str) -> Path:
        """Where the answer to a request of some data goes; from here on an interruption says how to go on."""
        from brinell.api import default_out

        folder = self.out or default_out(request.data, what)
        self.begin(request, folder, *flags)
        return folder

    def begin(self, request: BaseRequest, out: Path, *flags: str) -> None:
        """From here on an interruption says how to go on; `flags` belong to the command and to no request."""
        if self.verb.resume:
            again = f"brinell {self.verb.name}" if self.verb.kept else self.command(request)
            self.again = " ".join([again, *flags, "--resume --out", shlex.quote(address_of(out) or str(out))])

    def command(self, request: BaseRequest) -> str:
        """The command line that repeats a request."""
        return command_of(request, self.verb.name, self.verb.argument)

    def answer(self, result: BaseModel, in_words: Callable[[], None]) -> int:
        """Print the result, as one JSON object or in words. Returns the exit code 0."""
        return answer(self.json, result, in_words)


@dataclass(frozen=True, kw_only=True)
class Verb:
    """A verb of the command line."""

    name: str
    run: Callable[..., int]
    requests: tuple[type[BaseRequest], ...]
    """The requests whose fields are its options."""
    argument: str = ""
    """The field that is given by its position; a name that ends with .toml, and is the only one, is a file of settings."""
    kept: str = ""
    """The TOML file in an output folder with which --resume goes on; a verb that has one reads such a file too."""
    file: str = ""
    """Help of --out where it is a file and must be given; otherwise it is a folder, and a fresh one where it is not given."""
    resume: str = ""
    """Help of --resume; a verb without one cannot be resumed."""
    foreign: bool = False
    """Whether it is given a folder that names models and data, and may come from elsewhere."""

    def command(self) -> Callable[..., int]:
        """The function that typer makes the command of."""
        extra = list(inspect.signature(self.run, eval_str=True).parameters.values())[1:]
        parameters = self._parameters(extra)
        names = [parameter.name for parameter in extra]

        def command(**words: Any) -> int:
            own = {name: words.pop(name) for name in names}
            file, out, resume, json, trust = (words.pop(name, None) for name in ("file", "out", "resume", "json", "trust"))
            LOUDNESS.quiet |= words.pop("quiet")
            LOUDNESS.verbose |= words.pop("verbose")
            named = words.get(self.argument, "")
            alone = named[0] if self.kept and isinstance(named, list) and len(named) == 1 else named
            if str(alone).endswith(".toml"):
                file = Path(alone)
                del words[self.argument]
            given = {key: tuple(value) if isinstance(value, list) else value for key, value in words.items()}
            given = {key: value for key, value in given.items() if value not in (None, ())}
            given |= {key: ", ".join(given[key]) for key in self._joined() if key in given}
            return self._guarded(Asked(self, given, file, out, bool(resume), bool(json), trust), own)

        command.__doc__ = self.run.__doc__
        command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        return command

    def _joined(self) -> set[str]:
        """The fields whose values are joined to one text."""
        pairs = (pair for request in self.requests for pair in request.model_fields.items())
        return {key for key, field in pairs if JOINED in field.metadata}

    def _parameters(self, extra: list[inspect.Parameter]) -> list[inspect.Parameter]:
        found: dict[str, inspect.Parameter] = {}
        for key, field in (pair for request in self.requests for pair in request.model_fields.items()):
            found.setdefault(key, _option(key, field, key == self.argument))
        if self.argument:
            first = found.pop(self.argument)
        else:
            help = "A file of settings" + (f", such as the {self.kept} of an earlier run." if self.kept else ".")
            first = _parameter("file", Path | None, typer.Argument(metavar="[FILE.toml]", help=help), None)
        if self.file:
            last = [_parameter("out", Path, typer.Option(help=self.file), ...)]
        else:
            last = [_parameter("out", Path | None, typer.Option(help=FRESH), None)]
        if self.resume:
            last.append(_parameter("resume", bool, typer.Option("--resume", help=self.resume), False))
        if self.kept or self.foreign:
            last.append(_parameter("trust", Path | None, typer.Option(help=TRUST), None))
        flags = {"json": Json, "quiet": Quiet, "verbose": Verbose}
        last += [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=hint, default=False)
            for name, hint in flags.items()
        ]
        extra = [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in extra]
        return [first, *found.values(), *extra, *last]

    def _guarded(self, asked: Asked, own: Mapping[str, Any]) -> int:
        """Run the verb; where it stops midway, say how to go on."""
        try:
            return self.run(asked, **own)
        except KeyboardInterrupt:
            if not asked.again:
                raise
            say(f"interrupted; what was computed is kept: go on with {asked.again}")
            return 130
        except StoppedError as error:
            say(f"error: {error}" + (f" ({asked.again})" if asked.again and error.resumable else ""))
            return error.exit_code


def verb(*requests: type[BaseRequest], **settings: Any) -> Callable[[Callable[..., int]], Verb]:
    """Makes a verb of a function; its name is the function's, and the settings are those of `Verb`."""
    return lambda run: Verb(name=run.__name__.replace("_", "-"), run=run, requests=requests, **settings)


def command_of(request: BaseRequest, verb: str, argument: str = "") -> str:
    """The command line that repeats a request: every field that differs from its default."""
    words, last = ["brinell", verb], []
    for key, field in type(request).model_fields.items():
        value = getattr(request, key)
        if key == argument:
            last = [str(one) for one in (value if isinstance(value, tuple) else (value,))]
        elif isinstance(value, bool) and value != field.default:
            words.append(f"--{'' if value else 'no-'}{key.replace('_', '-')}")
        elif value != field.default:
            for one in value if isinstance(value, tuple) else (value,):
                words += [f"--{key.replace('_', '-')}", str(one)]
    return shlex.join(words + last)


def _option(name: str, field: Any, positional: bool) -> inspect.Parameter:
    """The option that a field of a request becomes. Its default is none, so that what a file says is not overruled."""
    kind, many = _plain(field.annotation)
    many = many or JOINED in field.metadata
    said = " ".join(str(field.description or "").split())
    if many:
        said += " May be repeated."
    if not field.is_required() and field.default not in (None, (), "") and field.default is not False:
        value = ", ".join(map(str, field.default)) if many else f"{field.default:g}" if kind is float else field.default
        said += f" Default: {value}."
    if positional and not many:
        said += " What ends with .toml is a file of settings."
    elif field.is_required():
        said += " It must be given."
    flag = [f"--{name.replace('_', '-')}"] if field.default is False else []  # and no --no-... beside it
    info: Any = typer.Argument(metavar=name.upper(), help=said) if positional else typer.Option(*flag, help=said)
    hint: Any = list[kind] if many else kind  # type: ignore[valid-type]
    needed = positional and field.is_required()
    return _parameter(name, hint if needed else hint | None, info, ... if needed else None)


def _plain(hint: Any) -> tuple[type, bool]:
    """The type that the command line reads a field as, and whether the option may be repeated."""
    if get_origin(hint) is tuple:
        return _plain(get_args(hint)[0])[0], True
    kinds = [one for one in get_args(hint) or (hint,) if one is not NoneType]
    return (kinds[0] if len(kinds) == 1 and kinds[0] in (int, float, bool) else str), False


def _parameter(name: str, hint: Any, info: Any, default: Any) -> inspect.Parameter:
    at = inspect.Parameter.empty if default is ... else default
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=Annotated[hint, info], default=at)
