"""One folder for each verb, with everything of that verb in it."""
