"""`brinell verify`: which claims of a run hold, which do not, and which are taken on trust."""
