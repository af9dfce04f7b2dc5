"""Every registered study keeps its record: on paper all of them, and in small runs those that leave a folder."""

import pytest

from _study_examples import EXAMPLES, Needs
from brinell.studies import register
from brinell.testing import check_study
from brinell.testing.studies import check_record, check_settings

OF_PEOPLE = {"review"}
"""Studies whose rows are answers of people: their own tests play these."""


def test_every_study_with_rows_has_an_example():
    studies = {verb for verb, study in register.studies().items() if study.layout is not None}
    assert set(EXAMPLES) | OF_PEOPLE == studies


def test_every_record():
    for study in register.studies().values():
        check_record(study)
        check_settings(study)


@pytest.fixture(scope="module")
def needed(tmp_path_factory):
    """What the example of a study needs besides its settings, made on demand."""
    return Needs(tmp_path_factory.mktemp("needed"))


@pytest.mark.parametrize("verb", EXAMPLES)
def test_small_runs(verb, needed):
    check_study(register.load(verb), EXAMPLES[verb] | needed(verb))
