"""Advice on a command line that means nothing: what each of its words is, and the command to type in its place.

Every word is accounted for before a command runs: as an option, as a value, or as an argument. A word that is none of these is
refused with the command that its kind suggests: a model, data, an attack, a distance, budgets, or an option of something else.
"""

import re
import shlex
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path
from typing import Any

from brinell import plugins
from brinell.core.errors import RequestError
from brinell.core.settings import Names, listed_words, number_type
from brinell.core.suggestions import nearest_names, same_names, suggestion
from brinell.engine.attack_names import ALIASES, CASCADES, PRESETS
from brinell.engine.eps_grid import parse_eps
from brinell.engine.request import DEVICES, JOINED
from brinell.engine.spelling import FILES, REMEDIES, expand_spec
from brinell.store.folder import verb_of
from brinell.studies import register
from brinell.studies.kit import Study

DASHES = "‐‑‒–—−"
"""Characters that text editors put in place of hyphens."""
SWITCH_WORDS = frozenset(("true", "false", "yes", "no", "on", "off", "1", "0"))
EXAMPLES = {
    "attack": "pgd",
    "budgets": "8/255",
    "dataset": "FILE.npz",
    "distance": "l2",
    "file": "FILE",
    "folder": "FOLDER",
    "model": "model.py:FACTORY",
}
"""Values that show what an option takes, by the kind of its name."""
SPECS = {"model": ("torch", "model.py:FACTORY"), "attack": ("pgd", "pgd"), "dataset": ("npz", "FILE.npz")}
"""Kinds whose plug-ins have settings in their specs: the plug-in that is meant unless another is named, and a spec of it."""
BOUNDS, LIMITS = "bounds", ("low", "high")
"""A setting of tables, and the two settings that say the same of other data."""
ANSWERS = {"help": "--help", "version": "--version"}
"""Words that other programs have as commands, and the options that they are here."""
VERBS = {"model": "audit --model", "dataset": "audit --data", "attack": "audit --attack", "folder": "report"}
"""The command that a word of a kind suggests in place of a command."""
ROOT_SWITCHES = ("-q", "--quiet", "-v", "--verbose", "-qv", "-vq")
"""Switches that come before a command."""


@dataclass
class Line:
    """The words of a command line after its verb."""

    study: Study
    parameters: Sequence[Any]
    """The parameters of the command, as typer has them."""
    values: dict[str, list[str]] = field(default_factory=dict)
    """The values of each option so far, by its name with two dashes."""
    typed: dict[str, str] = field(default_factory=dict)
    """What follows each word first, as far as it may be the value of an option."""
    arguments: list[str] = field(default_factory=list)
    last: str = ""
    """The option before the present word, whose value the word may go on with."""

    def check(self, words: Sequence[str]) -> None:
        """Check every word of the command line; raises an error at the first that fits nowhere.

        Raises:
            RequestError: the first word that means nothing.
        """
        queue = list(words)
        for word, following in zip(words, [*words[1:], ""], strict=False):
            name, equals, value = word.partition("=")
            self.typed.setdefault(name, value if equals else following)
        while queue:
            word = queue.pop(0)
            if word == "--help":
                return
            if word == "--":
                self.arguments += queue
                break
            if word[:1] in DASHES and word[1:]:
                raise RequestError(
                    f"{word} begins with a long dash, as text editors write it: type --{word.lstrip(DASHES + '-')}"
                )
            if word.startswith("-") and word[1:]:
                self._check_option(word, queue)
            elif self._has_place(word):
                self.arguments.append(word)
            else:
                raise RequestError(self._surplus([word, *takewhile(lambda argument: not argument.startswith("-"), queue)]))
        self._check_missing()

    def _check_option(self, word: str, queue: list[str]) -> None:
        """Take an option with its value."""
        name, equals, value = word.partition("=")
        parameter = self._options.get(name)
        if parameter is None and not word.startswith("--"):
            if all(f"-{letter}" in self._options for letter in word[1:]):
                return
            if f"-{name}" in self._options:
                raise RequestError(f"options have two dashes here: write {_with_value(f'-{name}', self.typed[name])}")
            if not name[2:]:
                long = [flag for flag in self._options if flag.startswith(f"-{name}")]
                raise RequestError(
                    f"options have long names here, and none is {name}: {' or '.join(long) or '--help lists them'}"
                )
            name = f"-{name}"
        if parameter is None:
            raise self._unknown(name, value if equals else next(iter(queue), ""))
        if parameter.is_flag:
            if equals:
                raise self._valued_switch(parameter, name, value)
            self.last = name
            return
        value = value if equals else queue.pop(0) if queue else ""
        if not value or (value.startswith("--") and value.partition("=")[0] in self._options):
            raise RequestError(f"{name} has no value: write {name} {self._example(parameter)}")
        self.values.setdefault(name, []).append(value)
        self.last = name

    def _has_place(self, word: str) -> bool:
        """True if the command takes this word without an option."""
        places = [parameter for parameter in self.parameters if parameter.param_type_name == "argument"]
        if any(place.nargs < 0 for place in places):
            return True
        return len(self.arguments) < len(places) and (bool(self.study.positional) or word.endswith(".toml"))

    @property
    def _options(self) -> dict[str, Any]:
        """The parameters by each of their names with dashes."""
        options = {}
        for parameter in self.parameters:
            for name in (*parameter.opts, *parameter.secondary_opts):
                if name.startswith("-"):
                    options[name] = parameter
        return options | {"--help": _HELP}

    def _example(self, parameter: Any) -> str:
        """A value that an option takes."""
        model_field = self.study.fields().get(parameter.name)
        if model_field is None:
            return {"shard": "1/4", "on": "ray", "tasks": "4"}.get(parameter.name, "FOLDER")
        if words := listed_words(model_field.annotation):
            return words[0]
        if kind := number_type(model_field.annotation):
            default = model_field.default
            return f"{default:g}" if isinstance(default, int | float) else "100" if kind is int else "0.5"
        mark = self.study.names_of(parameter.name)
        default = model_field.default
        default = default[0] if isinstance(default, tuple) and default else default
        return EXAMPLES.get(mark.kind if mark else "") or (default if isinstance(default, str) and default else "VALUE")

    def _valued_switch(self, parameter: Any, name: str, value: str) -> RequestError:
        if value.lower() in ("false", "no", "off", "0"):
            remedy = f"write {parameter.secondary_opts[0]}" if parameter.secondary_opts else "leave it out"
        else:
            remedy = f"write {name} alone"
        return RequestError(f"{name} is a switch and takes no value: {remedy}")

    def _check_missing(self) -> None:
        """Refuse a command line that lacks a word or an option which must be given.

        Raises:
            RequestError: the first that is missing.
        """
        places = [parameter for parameter in self.parameters if parameter.param_type_name == "argument"]
        example = f"as in `{self.study.examples[0]}`"
        for place in [place for place in places if place.required][len(self.arguments) :]:
            raise RequestError(f"brinell {self.study.verb} needs {place.metavar or place.name.upper()}, {example}")
        for parameter in self.parameters:
            if parameter.required and parameter not in places and not self.values.keys() & set(parameter.opts):
                raise RequestError(f"brinell {self.study.verb} needs {parameter.opts[0]}, {example}")

    # Words without an option

    def _surplus(self, words: Sequence[str]) -> str:
        """The message about words that no option takes."""
        command, word = f"brinell {self.study.verb}", words[0]
        key, equals, value = word.partition("=")
        last = self._options.get(self.last)
        if last is not None and last.is_flag and word.lower() in SWITCH_WORDS:
            return str(self._valued_switch(last, self.last, word))
        if word in register.entries():
            return f"{command} and brinell {word} are two commands: run one after the other"
        if f"--{key}" in self._options:
            return f"options begin with two dashes: write {_with_value(f'--{key}', value if equals else ' '.join(words[1:2]))}"
        settings = {f"--{name.replace('_', '-')}": name for name in self.study.fields() if name not in self.study.positional}
        kinds = kinds_of(word)
        advice = self._continuation(words, settings, kinds) or self._option_of(word, settings, kinds)
        if not advice and self.arguments and not self.last:
            first = " ".join(map(shlex.quote, self.arguments))
            return f"{command} takes {first}, and no word more without an option: leave out {shlex.quote(word)}"
        place = f"{shlex.quote(word)} after {self.last}" if self.last else shlex.quote(word)
        return advice or f"{command} has no place for {place}: every value follows its option; `{command} --help` lists them"

    def _continuation(self, words: Sequence[str], settings: dict[str, str], kinds: Sequence[str]) -> str:
        """The message about words that belong to the value before them, such as a path with spaces; empty if none do."""
        values = self.values.get(self.last)
        if self.last not in settings or not values:
            return ""
        spaced = " ".join([values[-1], *words])
        if Path(spaced).exists():
            return f"a name with spaces is put in quotation marks: write {self.last} {shlex.quote(spaced)}"
        model_field = self.study.fields()[settings[self.last]]
        if self.last == "--eps" and words[0].lower() in ("percent", "%"):
            return _error_of(f"{values[-1]}%")
        number = number_type(model_field.annotation)
        if self._options[self.last].multiple and (number or not kinds or self._mark(settings[self.last]).kind in kinds):
            return self._list_advice(self.last, model_field, words)
        if number and words[0][:1].isdigit():
            return f"{self.last} takes one number: write {self.last} {values[-1]} and leave out {words[0]}"
        return ""

    def _option_of(self, word: str, settings: dict[str, str], kinds: Sequence[str]) -> str:
        """The message about a word that is a value of an option, such as the name of an attack; empty if no option takes it."""
        command = f"brinell {self.study.verb}"
        for kind in kinds:
            for flag, setting in settings.items():
                if self._mark(setting).kind == kind and (kind != "folder" or setting == "run"):
                    return f"{command} takes {shlex.quote(word)} by an option: write {flag} {shlex.quote(word)}"
        if "folder" in kinds:
            return f"{word} is the folder of a run, and {command} takes none: brinell report {shlex.quote(word)} shows it"
        return ""

    def _list_advice(self, flag: str, model_field: Any, words: Sequence[str]) -> str:
        """How several values of an option are written."""
        parts = [part.strip(" ,;") for part in (*self.values[flag], *words)]
        parts = [part for part in parts if part and part != "and"]
        if JOINED in model_field.metadata:
            return f"several values of {flag} are joined by commas: write {flag} {','.join(parts)}"
        return f"{flag} is repeated for several values: write {' '.join(f'{flag} {shlex.quote(part)}' for part in parts)}"

    def _mark(self, setting: str) -> Names:
        return self.study.names_of(setting) or Names("")

    # Options that the command does not have

    def _unknown(self, name: str, value: str) -> RequestError:
        """The error for an option that a command does not have."""
        command = f"brinell {self.study.verb}"
        flags = [flag for flag in self._options if flag.startswith("--")]
        head, word = f"{command} has no option {name}", name.removeprefix("--")
        value = "" if value.startswith("--") else value
        if remedy := self._as_value(word) or self._as_own(word, flags, value):
            return RequestError(f"{head}: write {remedy}")
        if remedy := self._as_setting(value, [word.replace("-", "_")]):
            return RequestError(f"{head}: {remedy}")
        if verbs := [verb for verb, study in register.studies().items() if word.replace("-", "_") in study.fields()]:
            return RequestError(f"{head}; {' and '.join(f'brinell {verb}' for verb in verbs[:3])} has it")
        if remedy := self._as_setting(value, same_names(word, self._all_settings())):
            return RequestError(f"{head}: {remedy}")
        if not nearest_names(name, flags) and (remedy := self._as_setting(value, nearest_names(word, self._all_settings()))):
            return RequestError(f"{head}: {remedy}")
        return RequestError(f"{head}{suggestion(name, flags, f'`{command} --help` lists them')}")

    def _all_settings(self) -> list[str]:
        """The settings of the plug-ins that the command can name."""
        kinds = {self._mark(name).kind for name in self.study.fields()}
        return [name for kind in SPECS if kind in kinds for name in setting_names(kind)]

    def _as_own(self, word: str, flags: Sequence[str], value: str) -> str:
        """The option of this command whose name differs in spelling alone, or which other libraries call by this name."""
        synonyms = same_names(word, (flag.removeprefix("--") for flag in flags))
        return _with_value(f"--{synonyms[0]}", "" if self._options[f"--{synonyms[0]}"].is_flag else value) if synonyms else ""

    def _as_value(self, word: str) -> str:
        """The option whose value a word is, as in --pgd or --cuda; empty if there is none."""
        for name, model_field in self.study.fields().items():
            if name in self.study.positional or f"--{word}" in self._options:
                continue
            values = [*listed_words(model_field.annotation), *_names_of_kind(self._mark(name).kind)]
            match = same_names(word, DEVICES) if name == "device" else [word] if word in values else []
            if match:
                return f"--{name.replace('_', '-')} {match[0]}"
        return ""

    def _as_setting(self, value: str, names: Sequence[str]) -> str:
        """The option of which one of these names is a setting, as in --weights; empty if there is none."""
        for kind, (plugin, generic) in SPECS.items():
            flag = next((f"--{name.replace('_', '-')}" for name in self.study.fields() if self._mark(name).kind == kind), "")
            settings = setting_names(kind)
            match = next((name for name in names if name in settings), None)
            if not flag or match is None:
                continue
            typed = self.typed.get(flag, "")
            spec = typed or generic
            if match == BOUNDS and set(LIMITS) <= set(plugins.setting_names(kind, _plugin_of(kind, spec))):
                limits = re.split(r"[,:;\s]+", value.strip("()[] "))
                for limit, number in zip(LIMITS, limits if len(limits) == len(LIMITS) else ["", ""], strict=True):
                    spec = _spec_with(spec, limit, number)
                return f"write {flag} {shlex.quote(spec)}"
            if typed and match in plugins.setting_names(kind, _plugin_of(kind, typed)):
                return f"write {flag} {_with_setting(typed, match, value)}"
            if match in plugins.setting_names(kind, plugin):
                return f"write {flag} {_with_setting(generic, match, value)}"
            owners = [name for name in plugins.names(kind) if match in plugins.setting_names(kind, name)]
            owner_list = ", ".join(owners[:3]) + (" and others" if len(owners) > 3 else "")
            return f"{match} is a setting of {owner_list}, such as {flag} {_with_setting(f'{owners[0]}:...', match, value)}"
        return ""


def _with_setting(spec: str, name: str, value: str) -> str:
    """A spec with one setting more, in quotation marks."""
    return shlex.quote(_spec_with(spec, name, value))


def _spec_with(spec: str, name: str, value: str) -> str:
    """A spec with one setting more."""
    return f"{spec}{'&' if '?' in spec else '?'}{name}={value or 'VALUE'}"


def setting_names(kind: str) -> list[str]:
    """The settings of all plug-ins of a kind that come with Brinell, those of the usual one first."""
    first = SPECS[kind][0]
    plugin_names = [first, *(name for name in plugins.names(kind) if name != first)]
    return list(dict.fromkeys(key for name in plugin_names for key in plugins.setting_names(kind, name) if key != "path"))


def _plugin_of(kind: str, spec: str) -> str:
    """The plug-in that a spec names; empty for a cascade, and for a spec that means nothing."""
    with suppress(RequestError):
        name = plugins.parse(expand_spec("model" if kind == "model" else "dataset", spec) if kind != "attack" else spec).name
        return PRESETS.get(name, (name, {}))[0]
    return ""


def _names_of_kind(kind: str) -> list[str]:
    if kind not in plugins.FOLDERS:
        return []
    return [*plugins.names(kind), *((*CASCADES, *PRESETS, *ALIASES) if kind == "attack" else ())]


def _with_value(flag: str, value: str) -> str:
    """An option and its value as one types them."""
    return f"{flag} {shlex.quote(value)}" if value else flag


def _error_of(eps: str) -> str:
    """The error in the text of budgets; empty if there is none."""
    try:
        parse_eps(eps)
    except RequestError as error:
        return error.line
    return ""


def kinds_of(word: str) -> list[str]:
    """The kinds of things that a word names: budgets, an attack, a distance, a model, data, or the folder of a run."""
    kinds = []
    body = word.partition("?")[0]
    path = Path(body)
    if path.is_dir():
        return ["folder" if verb_of(path) else "dataset"]
    with suppress(RequestError):
        parse_eps(word)
        kinds.append("budgets")
    kinds += [kind for kind in ("attack", "distance") if body in _names_of_kind(kind)]
    for kind in ("model", "dataset"):
        files = (*FILES[kind], *(REMEDIES[kind] if kind == "model" else ()))
        is_file = path.suffix.lower() in files or (kind == "model" and ".py" in (path.suffix, path.suffix.partition(":")[0]))
        if is_file or body.partition(":")[0] in plugins.names(kind):
            kinds.append(kind)
    return kinds


def check_verb(arguments: Sequence[str]) -> None:
    """Refuse a command line whose first word is not a command.

    Raises:
        RequestError: it is another word, with the command that it suggests.
    """
    words = [argument for argument in arguments if argument not in ROOT_SWITCHES]
    if not words or words[0] in register.entries() or words[0] in ("--help", "--version"):
        return
    word, queue = words[0], words[1:]
    verb = next((argument for argument in queue if argument in register.entries()), "")
    if word in ANSWERS:
        raise RequestError(
            f"there is no command {word!r}: write {' '.join(['brinell', *([verb] if verb else []), ANSWERS[word]])}"
        )
    if verb and word.startswith("-"):
        line = [verb, *(argument for argument in words if argument != verb)]
        raise RequestError(f"the command comes first: write brinell {shlex.join(line)}")
    if word.startswith("-"):
        raise RequestError(f"a command comes before its options: write brinell audit {shlex.join(words)}")
    if word.endswith(".toml"):
        raise RequestError(f"there is no command {word!r}: for a file of settings write brinell audit {shlex.quote(word)}")
    for kind in kinds_of(word):
        if kind in VERBS:
            raise RequestError(f"there is no command {word!r}: write brinell {VERBS[kind]} {shlex.join(words)}")
    register.load(word)


class _Help:
    """The option --help, which typer adds."""

    is_flag, multiple = True, False
    opts, secondary_opts, name = ("--help",), (), "help"


_HELP = _Help()
