"""The page in a browser: it draws every plot, and asks for nothing else. Slow: a browser starts in seconds."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from benchmarks.study.page import html_page
from tests.benchmarks.study.test_page import figures
from tests.browser import chromium

OPTIONS = ["--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--window-size=1400,3000"]
CHECK = """<script>
const plots = [...document.querySelectorAll('svg')];
const drawn = plots.filter(svg => svg.getBoundingClientRect().height > 40 && svg.querySelector('rect, polyline'));
const wide = [...document.querySelectorAll('svg text')].filter(text => {
  const box = text.getBoundingClientRect(), frame = text.closest('svg').getBoundingClientRect();
  return box.right > frame.right + 1 || box.left < frame.left - 1; });
const asked = performance.getEntriesByType('resource').filter(entry => !entry.name.startsWith('data:'));
document.title = `plots ${plots.length} drawn ${drawn.length} cut ${wide.length} asked ${asked.length}`;
</script></body>"""


@pytest.mark.slow
def test_page_in_a_browser(tmp_path: Path) -> None:
    page = html_page(figures(0.47))
    (tmp_path / "study.html").write_text(page.replace("</body>", CHECK))
    command = [chromium(), *OPTIONS, f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom"]
    done = subprocess.run(
        [*command, f"file://{tmp_path / 'study.html'}"], capture_output=True, text=True, timeout=240, check=True
    )
    count = page.count("<svg")
    assert count >= 3
    assert f"<title>plots {count} drawn {count} cut 0 asked 0</title>" in done.stdout
