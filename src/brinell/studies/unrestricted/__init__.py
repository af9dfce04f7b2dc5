"""Examples from scratch: a conditional generator, how it is trained and kept, and the search of its latent space."""
