"""What the tests of the command line share: the program, its documents, real configs, schemas.

Each test file is called with the program's path as its first argument.
"""

import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import unittest

import jsonschema

ROOT = pathlib.Path(__file__).resolve().parents[1]
SCHEMAS = {path.name: json.loads(path.read_text(encoding="utf-8"))
           for path in sorted((ROOT / "docs" / "schema").glob("*.schema.json"))}
SECONDS = 120  # no call may hang; a loaded machine and sanitizers are slow

MODELS = json.loads((ROOT / "tests/data/configs/model-configs.json").read_text(encoding="utf-8"))
REFUSED = {"EmbeddingGemma-300m": "use_bidirectional_attention",
           "DeepSeek-V4-Flash": "compress_ratios"}
ENCODERS = ("Longformer-base-4096", "BigBird-roberta-base")
DECODERS = [name for name in MODELS if name not in REFUSED and name not in ENCODERS]

_PROGRAM = ""


def cached_model(name):
    """A GGUF that `./dev model` fetches, or None."""
    cache = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    path = pathlib.Path(cache) / "lacuna/models" / name
    return path if path.exists() else None


def cached_gemma():
    return cached_model("gemma-3-270m-q4_k_m.gguf")


def cached_smollm2():
    return cached_model("smollm2-135m-q4_1.gguf")


def run(*args, cwd=None, seconds=SECONDS):
    """What the program prints; a signal (a crash) fails the test at once."""
    result = subprocess.run([_PROGRAM, *map(str, args)], stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, cwd=cwd,
                            timeout=seconds, check=False)
    if result.returncode < 0:
        raise AssertionError(f"{signal.Signals(-result.returncode).name}: {args}")
    result.stdout = result.stdout.decode("utf-8")
    result.stderr = result.stderr.decode("utf-8", errors="replace")
    return result


def assert_refused(test, result, says):
    """Exit code 2 with one line that says what was wrong, and nothing on the standard output."""
    test.assertEqual(result.returncode, 2, result.stderr)
    test.assertEqual(result.stdout, "")
    test.assertRegex(result.stderr, r"\Alacuna: [^\n]+\n\Z")
    for word in says:
        test.assertIn(word, result.stderr)


def start(*args, **options):
    return subprocess.Popen([_PROGRAM, *map(str, args)], **options)


def text(*args, **options):
    result = run(*args, **options)
    if result.returncode != 0 or result.stderr:
        raise AssertionError(f"exit {result.returncode}: {args}: {result.stderr}")
    return result.stdout


def _unique(pairs):
    """A JSON object whose keys stand once: a repeated key would hide a figure."""
    keys = [key for key, _ in pairs]
    if len(set(keys)) != len(keys):
        raise AssertionError(f"a key is repeated in {keys}")
    return dict(pairs)


def _no_constant(word):
    raise AssertionError(f"{word} is no JSON")


def document(verb, *args, **options):
    """The JSON of a call, checked against the verb's schema."""
    printed = text(verb, *args, "--json", **options)
    found = json.loads(printed, object_pairs_hook=_unique, parse_constant=_no_constant)
    check(found, f"{verb}.schema.json", args)
    return found


def validator(name):
    """Other files are found by their names, whichever version of jsonschema resolves them."""
    schema = SCHEMAS[name]
    resolver = jsonschema.RefResolver(schema["$id"], schema, store=SCHEMAS)
    return jsonschema.Draft202012Validator(schema, resolver=resolver)


_VALIDATORS = {}


def check(found, name, about):
    if name not in _VALIDATORS:
        _VALIDATORS[name] = validator(name)
    # The deepest reason is the one that helps.
    problem = jsonschema.exceptions.best_match(_VALIDATORS[name].iter_errors(found))
    if problem is not None:
        place = ".".join(map(str, problem.absolute_path))
        raise AssertionError(f"{about}: {place}: {problem.message[:400]}")
    for word in big_counts(found):
        if not 2**63 <= int(word) < 2**127:
            raise AssertionError(f"{about}: {word} is a string although 63 bits hold it")


def big_counts(value):
    """Counts that are written as strings."""
    if isinstance(value, dict):
        for key, child in value.items():
            named = key.endswith(("pairs", "flops", "_bytes", "_tokens", "edges", "exponentials"))
            if isinstance(child, str) and child.isdigit() and named:
                yield child
            yield from big_counts(child)
    elif isinstance(value, list):
        for child in value:
            yield from big_counts(child)


def number(value):
    """A count as Python's integer, or None."""
    return None if value is None else int(value)


class Folder:
    """A temporary folder with files; one a process, removed at its end."""

    def __init__(self):
        self._folder = tempfile.TemporaryDirectory(prefix="lacuna-cli-")
        self.path = pathlib.Path(self._folder.name)

    def write(self, name, content):
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, bytes):
            path.write_bytes(content)
        else:
            path.write_text(content if isinstance(content, str) else json.dumps(content),
                            encoding="utf-8")
        return path

    def model(self, name, **changes):
        """The config of a real model as a file, with some keys changed."""
        config = {**MODELS[name]["config"], **changes}
        return self.write(f"{name}-{abs(hash(str(changes)))}.json", config)


FOLDER = Folder()


def main():
    global _PROGRAM
    if len(sys.argv) < 2:
        sys.exit("usage: TEST.py PROGRAM [unittest option…]")
    _PROGRAM = str(pathlib.Path(sys.argv.pop(1)).resolve())
    unittest.main(module="__main__")
