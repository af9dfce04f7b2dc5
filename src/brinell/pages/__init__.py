"""What a run shows to people and to other tools: the page, its tables, and the gate's verdict as JUnit and SARIF."""
