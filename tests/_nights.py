"""Random cases that differ from night to night, so that a night is short and a month is thorough."""

import datetime


def of_tonight(count: int) -> range:
    """So many numbers of today, which no other day has; a failure names its number, which repeats
    it.
    """
    day = datetime.date.today().toordinal()
    return range(day * count, (day + 1) * count)
