"""Output of a run for people and tools: the page, its tables, and the gate's verdict as JUnit and SARIF."""
