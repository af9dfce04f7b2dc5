"""`brinell epsilon`: which eps is sound for some data, and why."""
