"""Classes that have an order, such as grades: an answer is wrong if it is more than one away."""

from brinell.studies.tasks import TaskRecord

TASK = TaskRecord(
    opener="brinell_ordinal.run:open_ordinal",
    figures="brinell_ordinal.result:Grades",
    report="brinell_ordinal.result:GradesReport",
)
