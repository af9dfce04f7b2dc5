"""Run a study of saliency maps: compute maps by several methods on the same samples, and judge each map.

The parts of the work are the prediction of each group of samples, and each group by each method (`studies.explain.group`).
Batches therefore do not depend on the number of processes.
"""

import hashlib
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from brinell.analysis.attainable import count_units, sentences
from brinell.core.contracts import Dataset, Model, check_complete
from brinell.core.errors import RequestError, option
from brinell.core.record import Array
from brinell.core.version import VERSION
from brinell.engine import parts, provenance
from brinell.engine.answers import with_logits
from brinell.engine.cells import content_hash
from brinell.engine.class_counts import check_classes
from brinell.engine.group_attack import session
from brinell.engine.job import Job
from brinell.engine.plan import choose_device, model_facts, model_opener, unreadable_samples
from brinell.engine.request import count_samples
from brinell.engine.selection import Selection, choose_samples
from brinell.engine.sources import open_data
from brinell.pages import html
from brinell.store import parquet, rows
from brinell.store.files import digest, read_arrays, write_arrays
from brinell.store.folder import MANIFEST
from brinell.studies.explain import page
from brinell.studies.explain.analysis import REFERENCE, ExplainResult, families, summarise
from brinell.studies.explain.group import ExplainTask, Explanations, Group
from brinell.studies.explain.methods import CONTROLS, Method, build_methods
from brinell.studies.explain.of_run import TITLES, AdversarialDataset, open_adversarial
from brinell.studies.explain.records import CASCADE, INPUTS, LAYOUT, MAPS, TABLE, Rows
from brinell.studies.explain.region import Regions, RegionSpec, open_regions, read_region
from brinell.studies.explain.request import ExplainRequest
from brinell.studies.explain.truth import GroundTruth, open_truth
from brinell.studies.kit import Call

SAMPLES = 32
"""Default number of samples."""


def carry_out(call: Call) -> ExplainResult:
    """Explain samples by every method, judge the maps, and write the folder and its page, alone or with other processes.

    Raises:
        RequestError: a method does not fit the model or the data, a layer does not exist, the ground truth does not fit,
            no sample remains, or the folder contains other explanations.
        StoppedError: the folder cannot be written.
    """
    request: ExplainRequest = call.request
    folder, notify, dataset, model = call.folder(request.data), call.progress.note, call.dataset(), call.model()
    adversarial: AdversarialDataset | None = None
    if request.run is not None:
        adversarial, model = open_adversarial(request.run, call.trust)
    dataset = adversarial or (open_data(request.data, truth=True) if dataset is None else dataset)
    region = _read_region(request, dataset)
    model = check_complete(Model, model_opener(request.model, dataset)()) if model is None else model
    check_classes(model, np.asarray(dataset.labels(), dtype=np.int64), dataset)
    truth = None if request.truth is None else open_truth(request.truth, dataset)
    methods, unfit = build_methods(request, model, dataset)
    selection = select_explained(request, dataset, adversarial)
    unreadable = unreadable_samples(dataset, selection.ids.tolist())
    device, facts = choose_device(request.device), model_facts(model)
    excluded = {"cannot be read": len(unreadable)} if unreadable else {}
    ids = np.array([sample for sample in selection.ids.tolist() if sample not in unreadable], dtype=np.int64)
    attack_maps = {} if adversarial is None else {sample: adversarial.attack_maps(sample) for sample in ids.tolist()}
    if unplaced := [sample for sample, entry in attack_maps.items() if not entry.maps]:
        attack_maps = {sample: entry for sample, entry in attack_maps.items() if entry.maps}
        if attack_maps:  # every method explains the same samples
            excluded["whose attack placed nothing on patches"] = len(unplaced)
            ids = np.array(sorted(attack_maps), dtype=np.int64)
    model, regions = _open_regions(region, request, dataset, model, ids, device)
    cell = content_hash(
        layout=LAYOUT.version,
        brinell=VERSION,
        model=facts["digest"],
        data=dataset.digest(),
        ids=ids.tolist(),
        run=None if request.run is None else digest(Path(request.run) / MANIFEST),
        truth=_truth_digest(truth, ids),
        methods=[[method.name, method.settings] for method in methods],
        asked=request.model_dump(mode="json", include=ROW_SETTINGS),
    )
    job = Job(
        LAYOUT,
        folder,
        request,
        about={"cell": cell},
        identity=lambda manifest: manifest.get("cell"),
        inputs="the data, the weights, the ground truth, the run",
        device=device,
        command=call.command,
    )

    task_truth = regions.ground_truth() if regions else truth
    make_task = partial(ExplainTask, request, dataset, truth=truth, device=device, attack_maps=attack_maps, regions=regions)

    def work(makers: parts.PartMaker) -> Callable[[Path], None]:
        """Make the parts. Returns the function that writes the finished folder."""
        with session(model, device):

            def begin() -> dict[str, Any]:
                """Select the groups of samples."""
                about: dict[str, Any] = {}
                task = make_task(model if regions else with_logits(model, dataset, about, device))
                reasons = dict(excluded)
                groups = task.groups(ids, reasons)
                if not groups:
                    details = "; ".join(f"{count} {reason}" for reason, count in reasons.items())
                    raise RequestError(
                        f"no sample remains to explain ({details}): select others with {option('samples')}, "
                        f"{option('select')} or {option('only')}"
                    )
                return {
                    "answers": about.get("answers", {}),
                    "groups": groups,
                    "excluded": reasons,
                    "judge_forwards": task.judge_forwards,
                }

            selected = makers.make_once("groups", begin)
            _report_limits(request, methods, task_truth, sum(selected["groups"], []), notify)
            task = make_task(model if regions else with_logits(model, dataset, dict(selected), device))
            groups = GroupParts(task, methods, selected["groups"], makers.folder, notify)
            results = makers.make(groups.list_parts())

        def end(target: Path) -> None:
            """Write the manifest, arrays, rows and page into the folder."""
            sample_ids = [sample for group in selected["groups"] for sample in group]
            manifest = {
                **provenance.start_record(request, call.command, {}),
                **provenance.machine_facts(device),
                "state": "finished",
                "finished": provenance.timestamp(),
                "cell": cell,
                "data": provenance.data_facts(request.data, dataset, dataset.digest(), len(sample_ids), selection.method),
                "model": {"name": model.name} | facts,
                "methods": [{"name": method.name, "title": method.title, "settings": method.settings} for method in methods]
                + [{"name": name, "title": TITLES[name], "settings": {}} for name in task.attack_map_names],
                "cascade": [list(names) for names in task.stages],
                "unfit": unfit,
                "left_out": selected["excluded"],
                "judge_forwards": selected["judge_forwards"] + sum(result["judge_forwards"] for result in results.values()),
                "answers": selected["answers"],
            }
            explanations = groups.collect(target)
            write_arrays(target / MAPS, explanations.maps)
            write_arrays(target / INPUTS, _input_arrays(dataset, task_truth, sample_ids))
            if explanations.cascade:
                write_arrays(target / CASCADE, explanations.cascade)
            TABLE.write(target, manifest, rows.concatenate(explanations.rows))
            _write_pages(target, request.run)

        return end

    parts.make_folder(job, work, resume=call.resume, pool=call.pool())
    return summarise(TABLE.read(job.path)).model_copy(update={"folder": str(job.path)})


def _open_regions(
    region: RegionSpec | None, request: ExplainRequest, dataset: Dataset, model: Model, ids: Array, device: torch.device
) -> tuple[Model, Regions | None]:
    """The model, and its regions where it answers maps or boxes."""
    if region is None:
        return model, None
    regions = open_regions(region, dataset, model, request.explain, ids[:1].tolist(), device)
    return regions.model, regions


def _read_region(request: ExplainRequest, dataset: Dataset) -> RegionSpec | None:
    """The region that is explained; None for data with one class for each input.

    Raises:
        RequestError: it does not fit the data, or another setting is about the class of an input.
    """
    region = read_region(request.region, dataset)
    reasons = {
        "truth": "the region is the ground truth",
        "randomise": "shuffled weights are compared for classifiers alone",
        "cascade": "shuffled weights are compared for classifiers alone",
    }
    for name, reason in reasons.items():
        if region is not None and getattr(request, name):
            raise RequestError(f"{option(name)} does not go with {option('region')}, since {reason}: leave it out")
    return region


ROW_SETTINGS = {"region", "explain", "only", "steps", "copies", "randomise", "cascade", "noise", "seed"}
"""Settings that determine rows, besides those that name a model, data or methods."""


class GroupParts:
    """Parts of the work: the prediction of each group, the group by each method, and the maps of an attack.

    Args:
        task: the request applied to its model.
        methods: the methods.
        groups: the samples of each group.
        folder: the folder of the parts.
        notify: receives progress messages.
    """

    def __init__(
        self,
        task: ExplainTask,
        methods: Sequence[Method],
        groups: Sequence[Sequence[int]],
        folder: Path,
        notify: Callable[[str], None],
    ) -> None:
        self._task, self._methods, self._groups, self._folder, self._notify = task, methods, groups, folder, notify
        self._last: tuple[int, Group] | None = None
        """Number and content of the group that was explained last."""

    def list_parts(self) -> list[parts.Part]:
        """All parts, group by group."""
        all_parts = []
        for number in range(len(self._groups)):
            prediction = _prediction_part(number)
            all_parts.append(
                parts.Part(name=prediction, files=(_arrays_file(prediction),), make=partial(self._predict_group, number))
            )
            for name in self._part_names(number):
                make = partial(self._explain_group, number, name)
                all_parts.append(
                    parts.Part(name=name, files=(_arrays_file(name), _rows_file(name)), make=make, needs=(prediction,))
                )
        return all_parts

    def _part_names(self, number: int) -> list[str]:
        """Names of the parts of a group in the order of its rows; the maps of an attack come last."""
        count = len(self._methods) + bool(self._task.attack_map_names)
        return [f"group-{number:05d}-{index:03d}" for index in range(count)]

    def _predict_group(self, number: int) -> dict[str, Any]:
        """Run the part that predicts a group. Returns its cost for the judgement of maps."""
        ids, before = np.array(self._groups[number]), self._task.judge_forwards
        samples, methods = len(ids), len(self._methods)
        self._notify(f"{samples} sample{'s'[: samples > 1]}, {methods} method{'s'[: methods > 1]}")
        write_arrays(self._folder / _arrays_file(_prediction_part(number)), self._task.predict_group(ids))
        return {"judge_forwards": self._task.judge_forwards - before}

    def _explain_group(self, number: int, name: str) -> dict[str, Any]:
        """Run the part `name` of a group: one method, or the maps of an attack. Returns its cost for the judgement of maps."""
        before, index = self._task.judge_forwards, self._part_names(number).index(name)
        if self._last is None or self._last[0] != number:
            answers = read_arrays(self._folder / _arrays_file(_prediction_part(number)))
            self._last = number, self._task.build_group(np.array(self._groups[number]), answers)
        group = self._last[1]
        explanations = (
            self._task.explain(group, self._methods[index]) if index < len(self._methods) else self._task.load_attack_maps(group)
        )
        arrays = {f"maps/{key}": array for key, array in explanations.maps.items()}
        write_arrays(
            self._folder / _arrays_file(name), arrays | {f"cascade/{key}": array for key, array in explanations.cascade.items()}
        )
        parquet.write_table(self._folder / _rows_file(name), parquet.to_table(rows.concatenate(explanations.rows)))
        return {"judge_forwards": self._task.judge_forwards - before}

    def collect(self, folder: Path) -> Explanations:
        """Collect the explanations of all parts from the files in a folder."""
        explanations = Explanations()
        for name in (name for number in range(len(self._groups)) for name in self._part_names(number)):
            explanations.rows.append(parquet.load_rows(Rows, folder / _rows_file(name)))
            for key, array in read_arrays(folder / _arrays_file(name)).items():
                kind, _, sample_key = key.partition("/")
                (explanations.maps if kind == "maps" else explanations.cascade)[sample_key] = array
        return explanations


def _prediction_part(number: int) -> str:
    """Name of the part that predicts a group."""
    return f"look-{number:05d}"


def _arrays_file(part: str) -> str:
    return f"{parts.PARTS}/{part}.safetensors"


def _rows_file(part: str) -> str:
    return f"{parts.PARTS}/{part}.parquet"


def _report_limits(
    request: ExplainRequest,
    methods: Sequence[Method],
    truth: GroundTruth | None,
    ids: Sequence[int],
    notify: Callable[[str], None],
) -> None:
    """Report what no maps of these samples could show, before the first is computed."""
    groups = count_units(["" if truth is None else truth.group(sample) for sample in ids])
    names = [method.name.partition("?")[0] for method in methods]
    checked = sum(name not in CONTROLS for name in names)
    compared = len(names) - 1 + 2 * checked if REFERENCE in names and (request.steps or truth is not None) else 0
    shuffled = len(names) if request.randomise or request.cascade else 0
    for sentence in sentences(families(checked if request.steps else 0, shuffled, compared, groups, len(ids))):
        notify(sentence)


def _input_arrays(dataset: Dataset, truth: GroundTruth | None, ids: Sequence[int]) -> dict[str, Array]:
    """Inputs and ground truth of samples, by the names of the stored arrays."""
    arrays = {str(sample): x for sample, x in zip(ids, dataset.load(ids).cpu().numpy(), strict=True)}
    masks = {sample: mask for sample in ids if truth is not None and (mask := truth.mask(sample)) is not None}
    return arrays | {f"{sample}/truth": mask.astype(np.uint8) for sample, mask in masks.items()}


def _truth_digest(truth: GroundTruth | None, ids: Array) -> str | None:
    """Hash of the ground truth of samples; None without ground truth."""
    if truth is None:
        return None
    hasher = hashlib.blake2b(digest_size=16)
    for sample in ids.tolist():
        mask = truth.mask(sample)
        hasher.update(
            b"-" if mask is None else repr((mask.shape, truth.group(sample))).encode() + mask.astype(np.uint8).tobytes()
        )
    return hasher.hexdigest()


def select_explained(request: ExplainRequest, dataset: Dataset, adversarial: AdversarialDataset | None) -> Selection:
    """Select the samples to explain; of a run, the first fooled samples."""
    if adversarial is not None:
        return Selection(ids=adversarial.ids[: count_samples(request.samples, len(adversarial.ids), SAMPLES)], method="first")
    return choose_samples(request.model_copy(update={"samples": request.samples or min(SAMPLES, len(dataset))}), dataset)


def _write_pages(folder: Path, run: str | None) -> None:
    """Write the page of the explanations, and the page of the run whose gallery links to them."""
    page.write(folder)
    if run is not None:
        html.write(Path(run))
