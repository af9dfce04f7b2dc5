"""Sound lower bounds on margins: interval bounds, CROWN and its relatives, and branch and bound."""
