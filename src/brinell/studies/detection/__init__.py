"""`brinell detect`: what detectors are worth, against static and adaptive attacks."""
