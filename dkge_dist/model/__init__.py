"""The DKGE model in torch: dense parameters and pure functions of the rows a batch needs. Knows no tables, no files."""
