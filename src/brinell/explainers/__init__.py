"""How much each place of an input matters to the model's answer, one file each."""
