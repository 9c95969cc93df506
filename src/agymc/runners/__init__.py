"""HOW the slots of a shard run: in a loop, on threads, as coroutines."""
