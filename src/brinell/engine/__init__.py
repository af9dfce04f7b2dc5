"""The audit: from a request to records. Plan first, then compute, unit by unit."""
