"""The Python of the guides in docs/: their code blocks by section, run as a script in a process of its own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(guide: str, section: str) -> list[str]:
    """The code blocks below a heading of a guide."""
    text = (ROOT / "docs" / guide).read_text(encoding="utf-8")
    (found,) = [part for part in re.split(r"^## ", text, flags=re.MULTILINE)[1:] if part.startswith(f"{section}\n")]
    return BLOCK.findall(found)


def run(folder: Path, *pieces: str, environment: dict[str, str] | None = None) -> None:
    """Run some code in a folder, in a process of its own: libraries bring thread pools that must not meet."""
    (folder / "script.py").write_text("\n".join(pieces), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "script.py"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), **(environment or {})},
        capture_output=True,
        encoding="utf-8",
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stderr
