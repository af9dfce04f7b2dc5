"""`brinell verify`: what holds, and every way in which a run folder may no longer tell the truth."""

import shutil

import numpy as np
import pyarrow.parquet as pq
from safetensors.numpy import load_file, save_file

from _cli import arrays_of, audit_arguments, truncate
from _helpers import workspace
from brinell.cli import run as cli
from brinell.store.parquet import write_table
from brinell.store.run import LAYOUT, Run


def test_verify_passes_on_a_good_run(good, ask, capsys):
    code, answer = ask("verify", good)
    records = Run.open(good).rows
    assert code == 0 and answer["passed"] and answer["problems"] == []
    fooled = {
        (a, s)
        for a, s, o in zip(records.attack, records.sample_id, records.outcome, strict=True)
        if o == "broken"
    }
    judged = f"each of {len(fooled)} stored adversarial inputs is a success within its budget"
    assert judged in answer["verified_claims"] and "all 24 clean inputs" in " ".join(
        answer["verified_claims"]
    )
    assert cli(["verify", str(good)]) == 0
    assert "All that was repeated holds." in capsys.readouterr().out


def rehash(copy):
    """As a careful forger would: the manifest names the new files."""
    LAYOUT.save(copy, LAYOUT.read(copy))


def alter_array(copy, change):
    file = arrays_of(copy)
    arrays = load_file(file)
    name = sorted(arrays)[0]
    arrays[name] = change(arrays[name]).astype(np.float32)
    save_file(arrays, file)


def alter_record(copy, column, change):
    """Changes one value in the first row of a broken sample."""
    file = copy / "rows.parquet"
    table = pq.read_table(file)
    row = table["outcome"].to_pylist().index("broken")
    values = table[column].to_pylist()
    values[row] = change(values[row])
    index = table.schema.get_field_index(column)
    import pyarrow as pa

    table = table.set_column(
        index, table.schema.field(index), pa.array(values, table.schema.field(index).type)
    )
    write_table(file, table)


def delete_stage(copy):
    """Delete the rows of a stage."""
    table = pq.read_table(copy / "rows.parquet")
    mask = [attack != "fgsm" for attack in table["attack"].to_pylist()]
    write_table(copy / "rows.parquet", table.filter(mask))


SPOILT = {
    "array by a little": (
        lambda c: alter_array(c, lambda x: x + np.float32([1e-7, 0])),
        "changed after the run ended",
        None,
    ),
    "array back to clean": (
        lambda c: alter_array(c, lambda x: x - np.float32([0.1, 0])),
        "changed",
        "the stored input is no success",
    ),
    "array beyond eps": (
        lambda c: alter_array(c, lambda x: x + np.float32([0.3, 0])),
        "changed",
        "is farther than eps",
    ),
    "array out of bounds": (
        lambda c: alter_array(c, lambda x: x + np.float32([5, 0])),
        "changed",
        "leaves the bounds",
    ),
    "array of another shape": (
        lambda c: alter_array(c, lambda x: x[:1]),
        "changed",
        "not of shape",
    ),
    "array of NaN": (
        lambda c: alter_array(c, lambda x: x * np.nan),
        "changed",
        "leaves the bounds",
    ),
    "record says a smaller norm": (
        lambda c: alter_record(c, "l2", lambda v: v / 2),
        "changed",
        "column l2 is not what the stored input shows",
    ),
    "record says another eps": (
        lambda c: alter_record(c, "broken", lambda v: v / 3),
        "changed",
        "broken is no budget",
    ),
    "record says another outcome": (
        lambda c: alter_record(c, "outcome", lambda v: "survived"),
        "changed",
        None,
    ),
    "record says another clean class": (
        lambda c: alter_record(c, "label", lambda v: 1),
        "changed",
        "has another label than the first check",
    ),
    "records deleted": (lambda c: (c / "rows.parquet").unlink(), "the file is missing", None),
    "arrays deleted": (
        lambda c: arrays_of(c).unlink(),
        "the file is missing",
        "an input is stored, and no row says so, or the other way round",
    ),
}


def test_an_unfinished_run_is_not_verified(copy, capsys):
    (copy / "manifest.json").unlink()
    (copy / ".parts").mkdir()
    (copy / ".parts" / "plan.json").write_text("{}")
    assert cli(["verify", str(copy)]) == 2
    assert "is not finished: go on with brinell audit --resume" in capsys.readouterr().err


def test_verify_fails_on_a_spoilt_copy(good, tmp_path, ask, subtests):
    for spoiling, (spoil, message, _) in SPOILT.items():
        with subtests.test(spoiling=spoiling):
            copy = shutil.copytree(good, tmp_path / spoiling)
            spoil(copy)
            code, answer = ask("verify", copy)
            assert code == 1 and not answer["passed"]
            assert any(message in problem["description"] for problem in answer["problems"]), answer[
                "problems"
            ]


def test_verify_is_not_deceived_by_new_hashes(good, tmp_path, ask, subtests):
    for spoiling, (spoil, _, message) in SPOILT.items():
        if not message:
            continue
        with subtests.test(spoiling=spoiling):
            copy = shutil.copytree(good, tmp_path / spoiling)
            spoil(copy)
            rehash(copy)
            code, answer = ask("verify", copy)
            assert code == 1, "verify believed the manifest"
            assert any(message in problem["description"] for problem in answer["problems"]), answer[
                "problems"
            ]


def test_a_stage_without_its_rows_is_refused(copy, capsys):
    delete_stage(copy)
    rehash(copy)
    assert cli(["verify", str(copy)]) == 1
    assert "an input is stored, and no row says so" in " ".join(capsys.readouterr().out.split())


def flip_the_header(file):
    content = bytearray(file.read_bytes())
    content[9] ^= 0xFF
    file.write_bytes(bytes(content))


def test_verify_fails_on_damaged_files(good, tmp_path, ask, subtests):
    for damage in [truncate, flip_the_header]:
        for of_rows in (True, False):
            with subtests.test(of_rows=of_rows, damage=damage):
                copy = shutil.copytree(good, tmp_path / f"{of_rows} {damage.__name__}")
                damage(copy / "rows.parquet" if of_rows else arrays_of(copy))
                code, answer = ask("verify", copy)
                assert code == 1 and not answer["passed"]


def test_verify_fails_where_model_or_data_changed(tmp_path, ask):
    work = workspace(tmp_path)
    assert cli(audit_arguments(work, tmp_path / "run")) == 0
    model = (work / "model.py").read_text()
    (work / "model.py").write_text(model.replace("- self.at)", "- self.at - 0.02)"))
    code, answer = ask("verify", tmp_path / "run")
    assert code == 1 and any(
        "models.0.digest is" in problem["description"] for problem in answer["problems"]
    )
    (work / "model.py").write_text(model)
    arrays = dict(np.load(work / "data.npz"))
    np.savez(work / "data.npz", x=arrays["x"] + 0.001, y=arrays["y"])
    code, answer = ask("verify", tmp_path / "run")
    assert code == 1 and any(
        "data.digest is" in problem["description"] for problem in answer["problems"]
    )
