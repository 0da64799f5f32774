"""Tables of vectors by row, with their optimizer state: one protocol, the table in this process, and the shard plan."""
