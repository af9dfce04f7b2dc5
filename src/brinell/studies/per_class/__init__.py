"""`brinell study`: models side by side, class by class, and what carries their robustness."""
