"""One HTML page that needs nothing else, and the same tables in Markdown."""

from __future__ import annotations

import re
from html import escape
from pathlib import Path

from benchmarks.study.figures import Figures
from benchmarks.study.render import COLOURS, PLOT_STYLE, standalone
from benchmarks.study.sections.comparison import comparison, comparison_picture
from benchmarks.study.sections.efficiency import efficiency
from benchmarks.study.sections.from_text import from_text
from benchmarks.study.sections.questions import questions
from benchmarks.study.sections.robustness import robustness
from benchmarks.study.sections.scale import scale
from benchmarks.study.sections.section import Section
from benchmarks.study.sections.sensitivity import sensitivity

STYLE = (
    f":root {{ color-scheme: light dark; {COLOURS['light']} }}\n"
    f"@media (prefers-color-scheme: dark) {{ :root {{ {COLOURS['dark']} }} }}{PLOT_STYLE}"
    """
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); max-width: 1400px;
  margin: 0 auto; padding: 1rem; }
h1 { font-size: 1.7rem; } h2 { margin-top: 3rem; border-bottom: 1px solid var(--faint); } h3 { font-size: 1rem; }
nav a { margin-right: 1rem; } a { color: var(--one); }
figure { margin: 1.5rem 0; } figcaption, .small { font-size: .85rem; opacity: .8; }
.scroll { overflow-x: auto; } table { border-collapse: collapse; font-variant-numeric: tabular-nums;
  font-size: .85rem; }
p, li { max-width: 60rem; }
th, td { padding: .2rem .4rem; border-bottom: 1px solid var(--faint); text-align: right; white-space: nowrap; }
th { background: var(--head); white-space: normal; vertical-align: bottom; }
th:first-child, td.text { text-align: left; }
pre { background: var(--head); padding: .5rem; overflow-x: auto; }
svg { max-width: 100%; height: auto; margin: .5rem 0; }
@media print { :root { --ink: #000; --paper: #fff; --faint: #bbb; --head: #eee; --one: #5b7fa6; --two: #c9602b; }
  body { max-width: none; font-size: 10px; } nav { display: none; } figure, svg { break-inside: avoid; }
  table { font-size: 8px; } .scroll { overflow: visible; } }
"""
)
INTRODUCTION = (
    "Ours beside the systems and tables of the paper. Every figure was measured by the command above its table; what "
    "has not been measured yet says so."
)


def sections(figures: Figures) -> list[Section]:
    """All parts, in the order of the page."""
    return [
        comparison(figures),
        efficiency(figures),
        robustness(figures),
        sensitivity(figures),
        questions(figures),
        scale(figures),
        questions(figures, "debian"),
        from_text(figures),
    ]


def html_page(figures: Figures) -> str:
    """The page."""
    every = sections(figures)
    links = " ".join(f'<a href="#{section.part}">{escape(section.title)}</a>' for section in every)
    body = "".join(_section(figures, section) for section in every)
    return (
        "<!doctype html><html lang=en><head><meta charset=utf-8>"
        '<meta name=viewport content="width=device-width, initial-scale=1"><link rel=icon href="data:,">'
        f"<title>The study</title><style>{STYLE}</style></head><body><h1>The study</h1>"
        f"<p>{escape(INTRODUCTION)}</p>{_quick(figures)}<nav>{links}</nav>{body}{_failed(figures)}</body></html>\n"
    )


def _quick(figures: Figures) -> str:
    if not any("--quick" in one["command"] for one in figures.done):
        return ""
    return "<p><b>A quick run on one small graph that stands for all: its figures mean nothing.</b></p>"


def _section(figures: Figures, section: Section) -> str:
    says = "".join(f"<li>{escape(sentence)}</li>" for sentence in section.says)
    machine = figures.machine(section.part)
    return (
        f"<section id={section.part}><h2>{escape(section.title)}</h2><p>{_code(section.about)}</p>"
        f"<pre>{escape(figures.command(section.part))}</pre>"
        + (f"<p class=small>{escape(machine)}</p>" if machine else "")
        + f"<ul>{says}</ul>{''.join(section.plots)}{''.join(table.html() for table in section.tables)}</section>"
    )


def _code(text: str) -> str:
    """Words between backticks as code."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text))


def _failed(figures: Figures) -> str:
    if not figures.failed:
        return ""
    told = "".join(
        f"<li>{escape(', '.join(str(value) for value in one['cell'].values()))}: {escape(str(one.get('error')))}</li>"
        for one in figures.failed
    )
    return f"<section id=failed><h2>What failed</h2><ul>{told}</ul></section>"


def markdown(figures: Figures) -> str:
    """All tables, for README and docs."""
    parts = ["# The study", "", INTRODUCTION, ""]
    for section in sections(figures):
        parts += [f"## {section.title}", "", section.about, "", f"`{figures.command(section.part)}`", ""]
        parts += [*(f"- {sentence}" for sentence in section.says), ""]
        parts += [table.markdown() for table in section.tables]
    return "\n".join(parts) + "\n"


def write(figures: Figures, path: Path) -> None:
    """The page; beside it its tables in Markdown, and the picture of the comparison."""
    path.write_text(html_page(figures))
    path.with_suffix(".md").write_text(markdown(figures))
    picture = comparison_picture(figures)
    if picture:
        path.with_suffix(".svg").write_text(standalone(picture))
