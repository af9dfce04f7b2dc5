"""Turns a record of the register into a command: its options are the fields of its request.

Some options are shared by all commands.
"""

import inspect
import itertools
import os
import shlex
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Annotated, Any, get_args, get_origin

import typer
from typer.core import TyperCommand

from brinell.cli.options import (
    ROOT,
    Json,
    say,
    show,
    show_escaped,
    show_json,
    terminal_colors,
)
from brinell.cli.supervise import interruption_code
from brinell.core.errors import RequestError, StoppedError, option
from brinell.core.settings import listed_words, number_type
from brinell.core.user_files import user_path
from brinell.engine.ranks import ALONE, Place, find_place
from brinell.engine.request import JOINED, BaseRequest
from brinell.studies.attempts import carry_out
from brinell.studies.kit import Call, Output, Study, command_of
from brinell.studies.register import of_data

if TYPE_CHECKING:
    from brinell.engine.rank_pool import Crew

FIRST = 12
"""Options of a command that its help shows first."""
SETTINGS_FILE = "run.toml"
"""The file of settings in a folder of results, with which --resume goes on."""


@dataclass
class Command:
    """One command line of a study."""

    study: Study
    values: dict[str, Any]
    """The settings that the user gave, by the names of their fields."""
    options: dict[str, Any]
    """Values of the options that belong to no request, by name."""
    file: Path | None
    out: Path | None
    resume: bool
    json: bool
    resume_command: str = field(default="", init=False)
    """Command that resumes an interrupted run; empty until there is something to resume."""

    def execute(self) -> int:
        """Run the study and print its answer.

        Returns the exit code; if it is interrupted, prints how to resume.
        """
        try:
            place = find_place(ROOT.on) if self.study.workers else None
            if place is not None:
                return self._execute_on_ranks(place)
            return self._answer(self._run(self._workers()))

        except KeyboardInterrupt as interruption:
            if not self.resume_command:
                raise
            say(f"interrupted; what was computed is kept: go on with {self.resume_command}")
            return interruption_code(interruption)

        except StoppedError as error:
            hint = ""
            if self.resume_command and error.resumable:
                hint = f" ({self.resume_command})"
            say(f"error: {error}{hint}")
            return error.exit_code

    def _execute_on_ranks(self, place: Place) -> int:
        """Run the study on the ranks of a launcher as rank 0, or serve it as another."""
        # Torch reads it when it is imported: its store reports each connection that ends.
        os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
        from brinell.studies import serving

        command = repr((self.study.verb, self.values, self.options, self.file, self.out))
        # Rank 0 drives, and the others answer.
        if not place.rank:
            with serving.open_crew(place, self.study, self.out, command, say) as crew:
                return self._answer(self._run(crew))
        try:
            serving.serve_rank(place, self.study, self.out, command)
            return 0
        except KeyboardInterrupt as interruption:
            return interruption_code(interruption)

    def _run(self, on: "str | Crew | None") -> Any:
        """Carry out the study by the workers that `on` names; returns its result."""
        from brinell.engine.toml import parse_request
        from brinell.reports.live_progress import LiveProgress

        # The data may say which task the study is about.
        self.study = of_data(self.study, (self._file_values() | self.values).get("data"))
        study = self.study
        request = self._request()
        options = None if study.options is None else parse_request(study.options, self.options)

        with LiveProgress(quiet=ROOT.quiet, verbose=ROOT.verbose) as progress:
            call = Call(
                study=study,
                request=request,
                options=options,
                command=command_of(request, study),
                progress=progress,
                out=self.out,
                resume=self.resume,
                trust=ROOT.trust,
                on=on,
                begin=lambda path: self._begin(request, path),
            )
            return carry_out(call)

    def _workers(self) -> str | None:
        """Where the work is done; refuses --on of a study without work for workers."""
        if ROOT.on is not None and not self.study.workers:
            raise RequestError(
                f"brinell {self.study.command} has no work for workers: leave {option('on')} out"
            )
        return None if ROOT.on == ALONE else ROOT.on

    def _answer(self, result: Any) -> int:
        """Print a result; returns the exit code."""
        if self.json:
            show_json(result)
        elif hasattr(result, "styled_lines"):
            for line in result.styled_lines(terminal_colors(), verbose=ROOT.verbose):
                show_escaped(line)
        else:
            for line in result.lines(verbose=ROOT.verbose):
                show(line)
        return int(getattr(result, "exit_code", 0))

    def _begin(self, request: BaseRequest, path: Path) -> None:
        """Note how to resume the run, once its folder is there."""
        if not self.study.resume:
            return
        command = command_of(request, self.study)
        if self.study.output is Output.FOLDER:
            command = f"brinell {self.study.command}"  # the folder keeps the settings
        self.resume_command = f"{command} --resume --out {shlex.quote(str(path))}"

    def _request(self) -> BaseRequest:
        """The request: the settings of the file, overridden by the options."""
        from brinell.engine import toml

        return toml.parse_request(self.study.request, self._file_values() | self.values)

    def _file_values(self) -> dict[str, Any]:
        """The settings of the file, none without one.

        Nothing that it names is opened before it is trusted.
        """
        from brinell.engine import toml

        with self._settings() as file:
            if file is None:
                return {}
            from brinell.store.trust import check_settings

            check_settings(file, ROOT.trust, self.out if self.file is None else None)
            return toml.load(file)

    @contextmanager
    def _settings(self) -> Iterator[Path | None]:
        """The file of settings: the one named, or on --resume the one that the folder keeps."""
        if self.resume and self.out is None:
            raise RequestError(
                f"{option('resume')} needs {option('out')}: the folder of the run to go on with"
            )
        # Verbs that write one file keep no settings beside it.
        keeps_settings = self.study.output is Output.FOLDER
        if self.file is not None or not self.resume or self.out is None or not keeps_settings:
            yield self.file
            return

        if (self.out / SETTINGS_FILE).exists():
            yield self.out / SETTINGS_FILE
        elif not self.values:
            raise RequestError(
                f"{self.out} holds no run to resume, because it has no "
                f"{SETTINGS_FILE}; leave out {option('resume')} to begin one"
            )
        else:
            yield None


def function_of(study: Study, help: str) -> Callable[..., int]:
    """The function that typer makes the command of."""
    takes_file = study.output is not Output.ANSWER_ONLY and not study.positional
    joined = {
        name for name, field in study.request.model_fields.items() if JOINED in field.metadata
    }

    def command(**words: Any) -> int:
        file = _optional_path(words.pop("file", None))
        out = _optional_path(words.pop("out", None))
        resume = words.pop("resume", None)
        json = words.pop("json", None)

        # A word without a name may be a file of settings.
        first = next(iter(study.positional), "")
        argument = words.get(first, "")
        if isinstance(argument, list) and len(argument) == 1:
            argument = argument[0]
        if study.output is not Output.ANSWER_ONLY and str(argument).endswith(".toml"):
            file = user_path(argument)
            del words[first]

        values = {
            key: tuple(value) if isinstance(value, list) else value for key, value in words.items()
        }
        values = {key: value for key, value in values.items() if value not in (None, ())}
        values |= {key: ", ".join(values[key]) for key in joined if key in values}
        fields = study.request.model_fields
        # What is not of the request is of the command, such as a port.
        options = {key: values.pop(key) for key in list(values) if key not in fields}
        return Command(study, values, options, file, out, bool(resume), bool(json)).execute()

    parameters = [*(_file() if takes_file else ()), *_settings(study)]
    command.__doc__ = help
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return command


def _optional_path(text: Any) -> Path | None:
    """A path as a user means it; None for none."""
    return None if text is None else user_path(text)


def _file() -> Iterator[inspect.Parameter]:
    """The file of settings, where nothing else comes first."""
    help = f"A file of settings, such as the {SETTINGS_FILE} of an earlier run."
    yield _parameter("file", Path | None, typer.Argument(metavar="[FILE.toml]", help=help), None)


def _settings(study: Study) -> Iterator[inspect.Parameter]:
    """The parameters of a study in the order of its help: without a name, important, others."""
    options = {key: _option(key, field, study) for key, field in study.fields().items()}
    yield from (options.pop(key) for key in study.positional)
    # Two of the first are left for --out and --json.
    yield from itertools.islice(options.values(), FIRST - 2)

    # Where the results go, and the answer as JSON.
    if study.output is Output.FILE:
        yield _parameter("out", Path, typer.Option(help="The file to write."), ...)
    elif study.output is Output.FOLDER:
        help = "The folder of the results. Default: a fresh one in runs/."
        yield _parameter("out", Path | None, typer.Option(help=help), None)
    yield inspect.Parameter("json", inspect.Parameter.KEYWORD_ONLY, annotation=Json, default=False)
    yield from itertools.islice(options.values(), FIRST - 2, None)

    if study.resume:
        resume = typer.Option("--resume", help="Go on with what --out holds.")
        yield _parameter("resume", bool, resume, False)


def _option(name: str, field: Any, study: Study) -> inspect.Parameter:
    """The option for a field. It has no default, so that it never overrides a file of settings."""
    positional = name in study.positional
    kind, repeatable = _plain(field.annotation)
    repeatable = repeatable or JOINED in field.metadata
    help = _help(field, study, positional, repeatable)

    # typer needs to know what is read, and shows it.
    if positional:
        metavar = name.upper()
        if not field.is_required() and not repeatable:
            metavar = f"[{metavar}]"
        info: Any = typer.Argument(metavar=metavar, help=help)
    else:
        # A flag that is named has no --no-... beside it.
        flag = [f"--{name.replace('_', '-')}"] if field.default is False else []
        info = typer.Option(*flag, metavar=_metavar(field, repeatable), help=help)

    hint: Any = list[kind] if repeatable else kind  # type: ignore[valid-type]
    if positional and field.is_required():
        return _parameter(name, hint, info, ...)
    # None says that it was not given: a file of settings then decides.
    return _parameter(name, hint | None, info, None)


def _help(field: Any, study: Study, positional: bool, repeatable: bool) -> str:
    """The help of an option: what its field says, its default, and how it may be given."""
    text = " ".join(str(field.description or "").split())
    if repeatable:
        text += " May be repeated."
    default = field.default
    # A default that is empty, or off, is what a reader expects.
    if not field.is_required() and default not in (None, (), "") and default is not False:
        if repeatable:
            default = ", ".join(map(str, default))
        elif number_type(field.annotation) is float:
            default = f"{default:g}"
        text += f" Default: {default}."

    if positional and not repeatable and study.output is not Output.ANSWER_ONLY:
        text += " A value that ends with .toml is a file of settings."
    elif field.is_required() and not positional:
        text += " It must be given."
    return text


def _metavar(field: Any, repeatable: bool) -> str | None:
    """The values of a number as its help shows them; None leaves it to typer."""
    number = number_type(field.annotation)
    if number is None:
        return None
    words = "|".join([number.__name__, *listed_words(field.annotation)])
    return f"<list[{words}]>" if repeatable else f"<{words}>"


def _plain(hint: Any) -> tuple[type, bool]:
    """The type that the command line reads a field as, bool or str, and whether it is repeatable.

    A request reads its own numbers, so that a file, a terminal and Python refuse the same texts.
    """
    if get_origin(hint) is Annotated:
        return _plain(get_args(hint)[0])
    if get_origin(hint) is tuple:
        return _plain(get_args(hint)[0])[0], True
    kinds = [kind for kind in get_args(hint) or (hint,) if kind is not NoneType]
    if len(kinds) == 1 and get_origin(kinds[0]) in (Annotated, tuple):
        return _plain(kinds[0])
    return (bool if kinds == [bool] else str), False


def _parameter(name: str, hint: Any, info: Any, default: Any) -> inspect.Parameter:
    """A parameter of the command's function; `...` stands for a missing default."""
    value = inspect.Parameter.empty if default is ... else default
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, annotation=Annotated[hint, info], default=value
    )


class HelpByPanel(TyperCommand):
    """A command whose help shows its most important options first, the others as «Advanced»."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write arguments and options."""
        panels: dict[str, list[Any]] = {"Arguments": [], "Options": [], "Advanced": []}
        options = 0
        for parameter in self.get_params(ctx):
            is_option = parameter.param_type_name == "option"
            options += is_option
            # The first options are those that most calls need; the rest stand below.
            title = "Arguments" if not is_option else "Options" if options <= FIRST else "Advanced"
            record = parameter.get_help_record(ctx)
            if record is not None:
                panels[title].append(record)

        for title, records in panels.items():
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)


def epilog(examples: Iterable[str]) -> str:
    """Examples as the help of a command shows them, one a line."""
    # \b keeps the lines of a paragraph as they are.
    return "\b\n" + "\n".join(["Examples:", *(f"  {line}" for line in examples)])
