"""The demo in words. In: its report, with the names of labels. Out: paragraphs of 100 columns at most."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from textwrap import fill
from typing import Any

WIDTH = 100
INDENT = 4 * " "
REASONS = 2
"""That are told of an answer."""


def _paragraph(text: str) -> str:
    return "\n" + fill(text, WIDTH)


def _indented(text: str, hang: int = 0) -> str:
    """Further lines go on `hang` columns further to the right."""
    return fill(text, WIDTH, initial_indent=INDENT, subsequent_indent=INDENT + hang * " ")


def _fact(triple: Iterable[str], names: dict[str, str]) -> str:
    """A triple in words; what has no name is called by its label."""
    return " — ".join(names.get(label, label) for label in triple)


def begin(base: Mapping[str, Any], example: Iterable[str], names: dict[str, str]) -> str:
    """What the graph is, before it is learnt."""
    return (
        f"A movie graph, made up for this demo: {base['entities']:,} titles and people, "
        f"{base['triples']:,} facts such as\n{_indented(_fact(example, names))}\n"
        "All of it is learnt from scratch first, which takes a minute or so ..."
    )


def learnt(trained: Mapping[str, Any], evaluated: dict[str, Any]) -> str:
    """How well the first model guesses."""
    return _paragraph(
        f"Learnt in {trained['total_seconds']:.0f} s. The model now answers questions that the graph leaves open. "
        f"{evaluated['triples']} facts were kept from it: asked for one end of such a fact, it has the right "
        f"one among its first ten guesses {evaluated['hits@10']:.0%} of the time, out of {evaluated['candidates']:,}."
    )


def before_nights(count: int) -> str:
    """What comes every night."""
    return _paragraph(f"Now {count} nights. Each brings new facts and takes some back; only what changed is learnt.")


def after_nights() -> str:
    """How to read the lines of the nights."""
    return (
        "  (believed: 1 if asking for the fact puts it first, .5 if second, and so on, on average;\n"
        "   MRR: the same for facts that were kept from the model, and how it changed)"
    )


def arrived(report: Mapping[str, Any]) -> str:
    """A title that the last night brought."""
    found, names = report["arrived"], report["names"]
    person = names[found["person"]]
    *others, last = (names[guess] for guess in found["guesses"])
    guesses = f"{', '.join(others)} or {last}" if others else last
    return "\n".join(
        [
            _paragraph(f"New ({found['snapshot']}): {names[found['title']]}, with {person} as {found['role']}."),
            _indented(
                f"Asked for its {found['role']}, the model has {person} {_place(found['place'])}"
                f" of {found['candidates']:,}."
            ),
            _indented(f"Nobody has said yet who its {found['open_role']} is. The model guesses {guesses}."),
        ]
    )


def replaced(report: Mapping[str, Any]) -> str:
    """An answer that a night replaced, before and after it."""
    found, names = report["replaced"], report["names"]
    role, title, old, new = found["role"], *(names[found[key]] for key in ("title", "old", "new"))
    lines = [_paragraph(f"Changed ({found['snapshot']}): {title} had {old} as {role}, and now has {new}.")]
    for when, said in (("before", "the evening before: "), ("after", "the morning after:  ")):
        places = ", ".join(f"{line['place']}. {names[line['entity']]}" for line in found[when]["answers"])
        lines.append(_indented(said + places, len(said)))
    lines += _why(f"Why {new}? ", found["why"], role)
    counts = [night["update"]["fidelity"]["replaced"] for night in report["nights"]]
    total, above = sum(count["triples"] for count in counts), sum(_new_above_old(count) for count in counts)
    lines.append(
        _indented(f"The nights replaced {total} answers like this; {above} of the new ones are above the old.")
    )
    return "\n".join(lines)


def _new_above_old(count: Mapping[str, Any]) -> int:
    found = count.get("with_evidence") or count.get("vectors") or {}
    return round(int(count["triples"]) * float(found.get("new_above_old", 0.0)))


def predicted(report: Mapping[str, Any]) -> str:
    """A fact that the model had guessed before a night brought it, and how many such there were."""
    found, names = report["predicted"], report["names"]
    _, relation, tail = found["fact"]
    others = (
        f"The best of many: the nights added {found['added']} facts, {found['could_be_asked']} of them about titles "
        f"and people that were there before. {found['first']} of these were the first guess the evening before, "
        f"{found['among_first_ten']} among the first ten."
    )
    return "\n".join(
        [
            _paragraph(f"Predicted before it was known ({found['snapshot']}): {_fact(found['fact'], names)}."),
            _indented(
                f"The evening before, asked for its {relation}, the model had {names[tail]} {_place(found['place'])}"
                f" of {found['candidates']:,}."
            ),
            *_why("Why? ", found["why"], relation),
            _indented(others),
        ]
    )


def cost(report: Mapping[str, Any]) -> str:
    """Seconds from scratch and of a night, and what is in the store."""
    found, checked = report["cost"], report["check"]
    times = found["scratch_learning"] / found["night_learning"]
    state = "every checksum is right" if checked["ok"] else "IT IS DAMAGED"
    return (
        "\nWhat it cost                 learning      in all (with reading, measuring, writing)\n"
        f"    all of it, from scratch  {found['scratch_learning']:6.1f} s    {found['scratch_in_all']:6.1f} s\n"
        f"    a night (median)         {found['night_learning']:6.1f} s    {found['night_in_all']:6.1f} s"
        f"   {times:.0f} times less to learn\n"
        f"    The store has all {checked['versions']} versions in {checked['bytes'] / 1e6:.0f} MB; {state}."
    )


def next_steps(report: Mapping[str, Any]) -> str:
    """Commands to go on with. A title is asked about by its name, as any entity can be."""
    store, found = f"{report['folder']}/store", report["replaced"]
    asked = f"{shlex.quote(report['names'][found['title']])} {found['role']}"
    last = report["nights"][-1]["update"]
    lines = [
        (f"dkge log {store}", "every version"),
        (f"dkge answer {store} {asked} --why", "by name, and why"),
        (f"dkge answer {store} {asked} --as-of {found['before']['version']}", "as it was before"),
        (f"dkge diff {store} {last['from']} {last['snapshot']} --answers", "whose answers changed"),
        ("dkge ingest mine triples.tsv && dkge train mine", "your own: head<TAB>relation<TAB>tail"),
    ]
    width = max(len(command) for command, _ in lines)
    return "\nNext:\n" + "\n".join(f"{INDENT}{command:{width}}  # {comment}" for command, comment in lines)


def page(report: Mapping[str, Any]) -> str:
    """Where to look on."""
    return f"\nThe nights as a page, for your browser: {report['page']}"


def _place(place: float) -> str:
    return "first" if place <= 1 else f"in place {place:g}"


def _why(question: str, reasons: list[dict[str, Any]], role: str) -> list[str]:
    """The strongest reasons in words; the weights of all are in the report."""
    told = []
    for number, reason in enumerate([reason for reason in reasons if reason["kind"] != "other"][:REASONS]):
        words = reason["text"].replace("this answer", f"this {role}").replace("the known answer", f"the known {role}")
        told.append(_indented(("Also: " if number else question) + words[:1].upper() + words[1:], 2))
    return told
