"""WHERE the shards of a pool live: in the caller's process, or in processes of their own."""
