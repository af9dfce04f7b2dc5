"""The audit: from a request to records. Plan first, then compute, group by group."""
