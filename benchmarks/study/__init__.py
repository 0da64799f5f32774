"""The study: every system and every table of the paper, by one command, on one page.

    python -m benchmarks.study PART [--quick] [--work DIR] [--budget SECONDS] [--seeds N]
    python -m benchmarks.study report --out OUT.html
    python -m benchmarks.study readme
    python -m benchmarks.study export

A part is made of cells (`cells`), one for each system, data set, snapshot, seed and setting. What is done is not done
again; what failed or was interrupted is told and tried again. Each part is a module with `run(study)`; `page` and
`readme` show what has been measured so far, beside what is published.
"""
