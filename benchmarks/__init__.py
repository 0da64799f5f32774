"""One script a question. Each runs alone (`python -m benchmarks.bench_ingest`), prints a table or `--json`."""
