"""The run folder: manifest, records, arrays. Written whole, never changed, read without torch."""
