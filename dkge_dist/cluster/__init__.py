"""The only place that knows Ray: shards in actors, the table over them, data-parallel workers."""
