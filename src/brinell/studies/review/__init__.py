"""`brinell epsilon --review`: people judge which changes of a picture they notice."""
