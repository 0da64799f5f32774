"""The routes of an OpenAPI description as one page that loads nothing from elsewhere."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from html import escape
from typing import Any

STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 60rem; padding: 0 1rem; color: #222; }
h2 { font: 600 1rem ui-monospace, monospace; margin: 2rem 0 .3rem; border-top: 1px solid #ccc; padding-top: 1rem; }
h2 span { color: #06c; } table { border-collapse: collapse; } td, th { text-align: left; padding: .1rem 1.2rem .1rem 0;
vertical-align: top; } code { font-family: ui-monospace, monospace; } .note { color: #666; }
@media (prefers-color-scheme: dark) { body { background: #111; color: #ddd; } h2 span { color: #6bf; } }
"""


def api_page(described: Mapping[str, Any]) -> str:
    """A page from an OpenAPI description."""
    title, schemas = described["info"]["title"], described.get("components", {}).get("schemas", {})
    parts = [
        f"<!doctype html><html lang=en><meta charset=utf-8><title>{escape(title)}</title><style>{STYLE}</style>",
        "<meta name=viewport content='width=device-width'>",
        f"<h1>{escape(title)} {escape(described['info']['version'])}</h1>",
        f"<p>{escape(described['info'].get('description', ''))}</p>",
        "<p class=note>For programs: <a href='openapi.json'>openapi.json</a>, <a href='metrics'>metrics</a>.</p>",
    ]
    for path, methods in described["paths"].items():
        for method, route in methods.items():
            parts.append(f"<h2><span>{method.upper()}</span> {escape(path)}</h2>")
            parts.append(f"<p>{escape(route.get('description', ''))}</p>")
            rows = [*_parameters(route), *_body(route, schemas)]
            if rows:
                parts.append(f"<table><tr><th>parameter<th>type<th>default<th>{''.join(rows)}</table>")
            parts.append(_answer(route))
    return "\n".join(parts)


def _parameters(route: Mapping[str, Any]) -> Iterator[str]:
    for found in route.get("parameters", []):
        yield _row(found["name"], found.get("schema", {}), found.get("required", False), found.get("description", ""))


def _body(route: Mapping[str, Any], schemas: Mapping[str, Any]) -> Iterator[str]:
    content = route.get("requestBody", {}).get("content", {}).get("application/json", {})
    schema = schemas.get(_name(content.get("schema", {})), {})
    for name, field in schema.get("properties", {}).items():
        yield _row(name, field, name in schema.get("required", []), field.get("description", ""))


def _row(name: str, schema: Mapping[str, Any], required: bool, told: str) -> str:
    default = "" if required or schema.get("default") is None else str(schema["default"])
    cells = (f"<code>{escape(name)}</code>", escape(_type(schema)), escape("required" if required else default))
    return f"<tr><td>{'<td>'.join(cells)}<td class=note>{escape(told)}"


def _type(schema: Mapping[str, Any]) -> str:
    if "anyOf" in schema:
        return " or ".join(_type(some) for some in schema["anyOf"] if some.get("type") != "null")
    if "enum" in schema:
        return " or ".join(map(str, schema["enum"]))
    if "$ref" in schema:
        return _name(schema)
    return f"list of {_type(schema['items'])}" if schema.get("type") == "array" else str(schema.get("type", "any"))


def _name(schema: Mapping[str, Any]) -> str:
    return str(schema.get("$ref", "")).rpartition("/")[2]


def _answer(route: Mapping[str, Any]) -> str:
    content = route["responses"].get("200", {}).get("content", {}).get("application/json", {})
    name = _name(content.get("schema", {}))
    return f"<p class=note>gives <code>{escape(name)}</code></p>" if name else ""
