"""Maps of what matters to a model, by several methods on the same samples, and what each map is worth.

The parts of the work are a look at each group of samples, and each group by each method (`studies.explain.group`), so that the
batches are the same ones however many processes there are.
"""

import hashlib
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from brinell.core.contracts import Dataset, Model, complete
from brinell.core.errors import RequestError, option
from brinell.core.record import Array
from brinell.core.version import VERSION
from brinell.engine import trust
from brinell.engine.answers import settled
from brinell.engine.cells import cell
from brinell.engine.plan import check_classes, choose_device, facts_of, gaps, open_data, opener_of
from brinell.engine.selection import Selection, choose
from brinell.engine.shard import session
from brinell.pages import html
from brinell.runners import parts, provenance
from brinell.runners.loop import Job
from brinell.runners.meeting import Shard
from brinell.store import parquet, rows
from brinell.store.files import digest, read_arrays, write_arrays
from brinell.store.folder import MANIFEST
from brinell.store.table import ROWS, Folder
from brinell.studies.explain import page
from brinell.studies.explain.analysis import ExplainResult, summarise
from brinell.studies.explain.group import Explaining, Group, Made
from brinell.studies.explain.methods import Method, methods_of
from brinell.studies.explain.of_run import TITLES, Adversarial, opened_run
from brinell.studies.explain.records import CASCADE, INPUTS, LAYOUT, MAPS, TABLE, Rows
from brinell.studies.explain.request import ExplainRequest
from brinell.studies.explain.truth import GroundTruth, opened_truth
from brinell.studies.kit import Call, fresh_folder

Answer = TypeVar("Answer")
SAMPLES = 16
"""Samples where nobody says how many."""
NEEDED = (ROWS, MAPS, CASCADE)
"""What figures are made of."""


def explain(
    request: ExplainRequest,
    folder: Path,
    tell: Callable[[str], None] = lambda text: None,
    *,
    page: Callable[[Path], object],
    answer: Callable[[Folder[Rows], str], Answer],
    dataset: Dataset | None = None,
    model: Model | None = None,
    command: str = "",
    trusted: Path | str | None = None,
    resume: bool = False,
    shard: Shard | None = None,
) -> Answer:
    """Explain samples by every method, judge the maps, and write the folder, alone or with other processes.

    Args:
        request: what is asked for.
        folder: the folder to write; with a shard also the address of one (`store.shared`).
        tell: told what goes on.
        page: writes the page of a whole folder into it.
        answer: what is made of the whole and of the name of its folder; where the store is no folder, it holds no inputs.
        dataset: data already in memory, in place of `request.data`.
        model: a model already in memory, in place of `request.model`.
        command: how to repeat it, for the manifest.
        trusted: the folder from elsewhere whose run is explained as it names models and data.
        resume: whether to go on with what is there.
        shard: where this process begins among those that meet in the folder; none works alone, if it is no address.

    Raises:
        RequestError: a method that does not fit model or data, a layer that is not there, ground truth that does not fit,
            no sample left, a folder that holds other explanations.
        StoppedError: the folder cannot be written.
    """
    broken: Adversarial | None = None
    if request.run is not None:
        broken, model = opened_run(request.run, trusted)
    dataset = broken or (open_data(request.data) if dataset is None else dataset)
    model = complete(Model, opener_of(request.model, dataset)()) if model is None else model
    check_classes(model, np.asarray(dataset.labels(), dtype=np.int64), tuple(dataset.classes))
    truth = None if request.truth is None else opened_truth(request.truth, dataset)
    methods, unfit = methods_of(request, model, dataset)
    selection = selected(request, dataset, broken)
    lost = gaps(dataset, selection.ids.tolist())
    device, facts = choose_device(request.device), facts_of(model)
    left = {"cannot be read": len(lost)} if lost else {}
    ids = np.array([sample for sample in selection.ids.tolist() if sample not in lost], dtype=np.int64)
    stored = {} if broken is None else {sample: broken.left(sample) for sample in ids.tolist()}
    if bare := [sample for sample, one in stored.items() if not one.maps]:
        stored = {sample: one for sample, one in stored.items() if one.maps}
        if stored:  # so that every method is tried on the same samples
            left["whose attack placed nothing on patches"] = len(bare)
            ids = np.array(sorted(stored), dtype=np.int64)
    hashed = cell(
        layout=LAYOUT.version,
        brinell=VERSION,
        model=facts["digest"],
        data=dataset.digest(),
        ids=ids.tolist(),
        run=None if request.run is None else digest(Path(request.run) / MANIFEST),
        truth=_digest(truth, ids),
        methods=[[one.name, one.settings] for one in methods],
        asked=request.model_dump(mode="json", include=ASKED),
    )
    job = Job(
        LAYOUT,
        folder,
        request,
        about={"cell": hashed},
        identity=lambda manifest: manifest.get("cell"),
        inputs="the data, the weights, the ground truth, the run",
        device=device,
        command=command,
    )

    explaining = partial(Explaining, request, dataset, truth=truth, device=device, stored=stored)

    def work(makers: parts.Makers) -> Callable[[Path], None]:
        with session(model, device):

            def begin() -> dict[str, Any]:
                about: dict[str, Any] = {}
                task = explaining(settled(model, dataset, about, device))
                reasons = dict(left)
                groups = task.groups(ids, reasons)
                if not groups:
                    why = "; ".join(f"{count} {reason}" for reason, count in reasons.items())
                    raise RequestError(
                        f"no sample is left to explain ({why}): ask for others by {option('samples')}, "
                        f"{option('select')} or {option('only')}"
                    )
                return {"answers": about.get("answers", {}), "groups": groups, "left": reasons, "judged": task.judged}

            begun = makers.once("groups", begin)
            task = explaining(settled(model, dataset, dict(begun), device))
            groups = Groups(task, methods, begun["groups"], makers.folder, tell)
            told = makers.make(groups.listed())

        def end(whole: Path) -> None:
            kept = [sample for group in begun["groups"] for sample in group]
            dumped = request.model_dump(mode="json")
            manifest = {
                **provenance.beginning(request, command, {}),
                **provenance.place(device),
                trust.MARK: trust.mark(dumped, type(request)),
                "state": "finished",
                "finished": provenance.now(),
                "cell": hashed,
                "data": provenance.data(request.data, dataset, dataset.digest(), len(kept), selection.how),
                "model": {"name": model.name} | facts,
                "methods": [{"name": one.name, "title": one.title, "settings": one.settings} for one in methods]
                + [{"name": name, "title": TITLES[name], "settings": {}} for name in task.left_by_attack],
                "cascade": [list(names) for names in task.stages],
                "unfit": unfit,
                "left_out": begun["left"],
                "judge_forwards": begun["judged"] + sum(one["judged"] for one in told.values()),
                "answers": begun["answers"],
            }
            made = groups.gathered(whole)
            write_arrays(whole / MAPS, made.maps)
            write_arrays(whole / INPUTS, _inputs(dataset, truth, kept))
            if made.cascade:
                write_arrays(whole / CASCADE, made.cascade)
            TABLE.write(whole, manifest, rows.concatenate(made.rows))
            page(whole)

        return end

    def answered(whole: Path, name: str) -> Answer:
        return answer(TABLE.read(whole), name)

    return parts.run(job, shard, work, resume=resume, needed=NEEDED, answer=answered, message=tell)


ASKED = {"explain", "only", "steps", "copies", "randomise", "cascade", "noise", "seed"}
"""Settings on which rows depend, beside those that name something."""


class Groups:
    """The parts of the work: a look at each group, the group by each method, and what an attack left of it.

    Args:
        task: the request on its model.
        methods: that are tried.
        groups: the samples of each group.
        folder: where parts are written.
        tell: told what goes on.
    """

    def __init__(
        self,
        task: Explaining,
        methods: Sequence[Method],
        groups: Sequence[Sequence[int]],
        folder: Path,
        tell: Callable[[str], None],
    ) -> None:
        self._task, self._methods, self._groups, self._folder, self._tell = task, methods, groups, folder, tell
        self._last: tuple[int, Group] | None = None
        """The group that was explained last, by its number."""

    def listed(self) -> list[parts.Part]:
        """All of them, group after group."""
        found = []
        for number in range(len(self._groups)):
            look = _look(number)
            found.append(parts.Part(name=look, files=(_arrays(look),), make=partial(self._look, number)))
            for name in self._names(number):
                make = partial(self._explain, number, name)
                found.append(parts.Part(name=name, files=(_arrays(name), _rows(name)), make=make, needs=(look,)))
        return found

    def _names(self, number: int) -> list[str]:
        """The parts of a group in the order of its rows, what an attack left last."""
        count = len(self._methods) + bool(self._task.left_by_attack)
        return [f"group-{number:05d}-{at:03d}" for at in range(count)]

    def _look(self, number: int) -> dict[str, Any]:
        ids, before = np.array(self._groups[number]), self._task.judged
        samples, methods = len(ids), len(self._methods)
        self._tell(f"{samples} sample{'s'[: samples > 1]}, {methods} method{'s'[: methods > 1]}")
        write_arrays(self._folder / _arrays(_look(number)), self._task.look(ids))
        return {"judged": self._task.judged - before}

    def _explain(self, number: int, name: str) -> dict[str, Any]:
        before, at = self._task.judged, self._names(number).index(name)
        if self._last is None or self._last[0] != number:
            looked = read_arrays(self._folder / _arrays(_look(number)))
            self._last = number, self._task.group(np.array(self._groups[number]), looked)
        group = self._last[1]
        made = self._task.explain(group, self._methods[at]) if at < len(self._methods) else self._task.left(group)
        arrays = {f"maps/{key}": one for key, one in made.maps.items()}
        write_arrays(self._folder / _arrays(name), arrays | {f"cascade/{key}": one for key, one in made.cascade.items()})
        parquet.write_table(self._folder / _rows(name), parquet.to_table(rows.concatenate(made.rows)))
        return {"judged": self._task.judged - before}

    def gathered(self, folder: Path) -> Made:
        """What all parts hold, whose files are in a folder."""
        made = Made()
        for name in (name for number in range(len(self._groups)) for name in self._names(number)):
            made.rows.append(parquet.load_rows(Rows, folder / _rows(name)))
            for key, one in read_arrays(folder / _arrays(name)).items():
                kind, _, of = key.partition("/")
                (made.maps if kind == "maps" else made.cascade)[of] = one
        return made


def _look(number: int) -> str:
    """The part of a look at a group."""
    return f"look-{number:05d}"


def _arrays(part: str) -> str:
    return f"{parts.KEPT}/{part}.safetensors"


def _rows(part: str) -> str:
    return f"{parts.KEPT}/{part}.parquet"


def _inputs(dataset: Dataset, truth: GroundTruth | None, ids: Sequence[int]) -> dict[str, Array]:
    """The inputs of samples and where their objects are, by the names of the arrays."""
    found = {str(sample): one for sample, one in zip(ids, dataset.load(ids).cpu().numpy(), strict=True)}
    known = {sample: one for sample in ids if truth is not None and (one := truth.of(sample)) is not None}
    return found | {f"{sample}/truth": one.astype(np.uint8) for sample, one in known.items()}


def _digest(truth: GroundTruth | None, ids: Array) -> str | None:
    """Hash of where the objects of samples are."""
    if truth is None:
        return None
    found = hashlib.blake2b(digest_size=16)
    for sample in ids.tolist():
        one = truth.of(sample)
        found.update(b"-" if one is None else repr((one.shape, truth.group(sample))).encode() + one.astype(np.uint8).tobytes())
    return found.hexdigest()


def selected(request: ExplainRequest, dataset: Dataset, broken: Adversarial | None) -> Selection:
    """The samples to explain: of a run the first that were fooled."""
    if broken is not None:
        return Selection(ids=broken.ids[: request.samples or SAMPLES], how="first")
    return choose(request.model_copy(update={"samples": request.samples or min(SAMPLES, len(dataset))}), dataset)


def carry_out(call: Call) -> ExplainResult:
    """Explain samples by every method, judge the maps, and write the folder and its page.

    Raises:
        RequestError: what cannot be carried out.
        StoppedError: the folder cannot be written.
    """
    request: ExplainRequest = call.request
    folder = call.out or (fresh_folder(request.data, "explain") if request.run is None else Path(request.run) / "explain")
    call.begin(folder)

    def pages(whole: Path) -> None:
        page.write(whole)
        if request.run is not None:
            html.write(Path(request.run))  # its gallery shows the way here

    def answer(made: Folder[Rows], name: str) -> ExplainResult:
        return summarise(made).model_copy(update={"folder": name})

    return explain(
        request,
        folder,
        call.progress.note,
        page=pages,
        answer=answer,
        dataset=call.dataset(),
        model=call.model(),
        command=call.command,
        trusted=call.trust,
        resume=call.resume,
        shard=call.shard,
    )


def open_result(folder: Path) -> ExplainResult:
    """What a folder of explanations says, from its records alone."""
    return summarise(TABLE.read(folder))
