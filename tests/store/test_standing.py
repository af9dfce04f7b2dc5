"""What is claimed is there: each pattern of the table names a key or a column of a run."""

from brinell.core.record import COLUMNS
from brinell.store.run_manifest import RunManifest
from brinell.store.standing import CLAIMED, RUN_CLAIMED, claimed_names


def test_every_claim_names_a_key_or_a_column():
    keys = {field.alias or name for name, field in RunManifest.model_fields.items()}
    assert set(claimed_names({**CLAIMED, **RUN_CLAIMED})) <= keys | set(COLUMNS)
