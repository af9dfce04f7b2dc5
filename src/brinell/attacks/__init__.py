"""One file for each attack, reading like its paper. None imports another."""
