"""Writes docs/json.md, the list of all JSON keys, from the schemas of docs/schema.

    json_docs.py            writes docs/json.md
    json_docs.py --check    fails where docs/json.md is not what would be written
"""

import json
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
SCHEMAS = ROOT / "docs" / "schema"
PAGE = ROOT / "docs" / "json.md"

# In the order in which they are documented; any others follow.
ORDER = ("cost", "show", "capacity", "explain", "run", "bench_kernels", "bench_decode",
         "bench_model", "audit", "model", "layer_table", "device")

INTRO = """# JSON keys

Every verb prints one JSON document with `--json`. The schemas in `docs/schema/` say what stands in it,
and every output is tested against them. This page is written from them by `tools/json_docs.py`: change
a description there, not here.

Null means: not known, or no answer; the words of the key say which. A *count* is an exact integer:
above 2^63-1 it is a decimal string, so that no reader rounds it. A key that is not in every document
is marked "optional".
"""
HEAD = "| key | value | unit | what it is |\n| --- | --- | --- | --- |\n"


def schemas():
    """Name -> schema, in the order of the page."""
    found = {path.name.removesuffix(".schema.json"): json.loads(path.read_text(encoding="utf-8"))
             for path in sorted(SCHEMAS.glob("*.schema.json"))}
    names = [name for name in ORDER if name in found]
    return {name: found[name] for name in names + [name for name in found if name not in names]}


def listed(definition):
    """Whether a definition has a table of its own."""
    return "properties" in definition


def value_text(node, schema_name, defs):
    """What a value is, in words."""
    target = node.get("$ref", "")
    if target.startswith("#/$defs/"):
        name = target.removeprefix("#/$defs/")
        return (f"[{name}](#{schema_name}-{name})" if listed(defs[name])
                else name.replace("_", " "))
    if target:  # of another schema, or all of it
        name = target.replace(".schema.json", "").replace("#/$defs/", "-")
        return f"[{name.replace('-', ' ')}](#{name})"
    if "anyOf" in node:
        return " or ".join(value_text(part, schema_name, defs) for part in node["anyOf"])
    if "const" in node:
        return json.dumps(node["const"])
    if "enum" in node:
        return ", ".join(json.dumps(value) for value in node["enum"])
    if node.get("type") == "array":
        return f"list of {value_text(node['items'], schema_name, defs) or 'values'}"
    kinds = node.get("type", "")
    return " or ".join(kinds) if isinstance(kinds, list) else kinds


def rows_of(node, schema_name, defs, prefix=""):
    """(key, value, unit, words) of each key of a node, and of what it holds itself."""
    for key, child in node.get("properties", {}).items():
        words = child.get("description", "")
        if key not in node.get("required", []) and "$ref" not in node:
            words = f"optional: {words}"
        yield prefix + key, value_text(child, schema_name, defs), child.get("unit", ""), words
        yield from rows_of(child, schema_name, defs, f"{prefix}{key}.")
        if "items" in child:
            yield from rows_of(child["items"], schema_name, defs, f"{prefix}{key}[].")


def table(node, schema_name, defs):
    text = HEAD
    for row in rows_of(node, schema_name, defs):
        key, value, unit, words = (cell.replace("|", "\\|") for cell in row)
        text += f"| `{key}` | {value} | {unit} | {words} |\n"
    return text


def page():
    text = INTRO
    for name, schema in schemas().items():
        defs = schema.get("$defs", {})
        text += f"\n## {name}\n\n`{schema['title']}`: {schema['description']}\n\n"
        text += table(schema, name, defs)
        for inner, definition in defs.items():
            if listed(definition):
                text += f"\n### {name} {inner}\n\n{definition['description']}\n\n"
                if "$ref" in definition:
                    base = value_text({"$ref": definition["$ref"]}, name, defs)
                    text += f"Also every key of {base}.\n\n"
                text += table(definition, name, defs)
    return text


def main():
    if sys.argv[1:] == ["--check"]:
        if not PAGE.exists() or PAGE.read_text(encoding="utf-8") != page():
            sys.exit("docs/json.md is not what the schemas say; run tools/json_docs.py")
    elif not sys.argv[1:]:
        PAGE.write_text(page(), encoding="utf-8")
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()
