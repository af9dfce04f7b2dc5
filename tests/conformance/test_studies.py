"""Every registered study keeps its record: on paper all of them, and in small runs those that leave
a folder.
"""

import pytest

from _pages import page_faults
from _study_examples import EXAMPLES, OF_CLASSES, finished
from brinell.studies import register
from brinell.testing import studies as rules

__all__ = ["finished"]
OF_PEOPLE = {"review"}
"""Studies whose rows are answers of people: their own tests play these."""
each = pytest.mark.parametrize("finished", OF_CLASSES, indirect=True)


def test_every_study_with_rows_has_an_example():
    studies = {verb for verb, study in register.studies().items() if study.leaves_folder}
    assert set(EXAMPLES) | OF_PEOPLE == studies


def test_every_record():
    for study in register.studies().values():
        rules.check_record(study)


@each
def test_records_and_another_request(finished):
    rules.check_records(finished)
    rules.check_other_request(finished)


@each
def test_resume_and_command(finished):
    rules.check_command(finished)


@pytest.mark.slow
@each
def test_page(finished):
    assert page_faults(finished.folder / "report.html") == []
