"""`python -m brinell`: the same as the command `brinell`."""

from brinell.cli import main

main()
