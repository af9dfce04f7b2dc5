"""The audit: from a request to records. Plan first, then compute, shard by shard."""
