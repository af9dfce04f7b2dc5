"""The shipped checker over every distortion that is discovered."""

import pytest

from brinell import plugins
from brinell.testing import check_distortion


@pytest.mark.parametrize("part", range(10))
def test_distortions(part):
    for name in plugins.names("distortion")[part::10]:
        check_distortion(plugins.load("distortion", name))


def test_distortions_with_other_settings():
    check_distortion(plugins.load("distortion", "dead-pixel"), value=0.5)
    check_distortion(plugins.load("distortion", "signed-patch"), factor=3.0)
    check_distortion(plugins.load("distortion", "mains-hum"), rate=360.0, frequency=60.0)
