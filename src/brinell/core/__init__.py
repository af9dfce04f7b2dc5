"""Values and pure functions: torch and numpy only, no input or output, no global state."""
