"""Checks the rules of the tree that no compiler checks; docs/ci.md lists them.

    check_tree.py [ROOT]

Prints one line a violation, `path:line: what`, and fails where there is one. Warnings do not fail.
"""

import pathlib
import re
import sys
from dataclasses import dataclass, field

# A folder of src/ includes only itself and folders to its left.
ORDER = ("base machine report topology cost config plan kernels attention cache select model bench "
         "eval serve audit cli python").split()
LAST_RANK = ORDER.index("cli")  # cli and python stand side by side, at the right end

FORBIDDEN_NAMES = ("utils", "common", "helpers", "misc", "impl")
MAX_SOURCE_LINES = 500
MAX_HEADER_LINES = 200

# The tests' own files: what may include them, by their name.
TEST_HEADERS = {"problems.h": lambda path: is_test(path) or folder_of(path) == "bench",
                "oracle.h": lambda path: is_test(path),
                # One attention call as data, its answer by oracle.h's definition, and the library's.
                "attention_case.h": lambda path: is_test(path),
                "attention_answer.h": lambda path: is_test(path)}

# Written so that this file does not hold what it forbids.
FORBIDDEN_TEXT = {
    r"(?<![\w.~}])/(work|root|home)/": "names a path of one machine",
    r"\b(debian|ubuntu|pypi|pythonhosted|npmjs|crates)\.(org|net|com|io)\b": "names a registry's host",
    r"(?i)\bsess" r"ions?\b": "holds a word that the tree does without",
}

DOC_SUFFIXES = (".h", ".cc", ".md", ".py", ".sh", ".json", ".txt", ".cmake", ".svg", ".html")
# Files of others that docs speak of, which are no files of the tree.
FOREIGN_FILES = {"config.json", "tokenizer.json", "generation_config.json", "tokenizer_config.json"}
FOREIGN_NAMESPACES = {"std", "fmt", "nlohmann", "CLI", "testing", "rc", "benchmark"}


@dataclass
class Report:
    violations: list = field(default_factory=list)
    warnings: list = field(default_factory=list)

    def add(self, path, line, what):
        self.violations.append(f"{path}:{line}: {what}")


# --- the tree ------------------------------------------------------------------------------------


def tree_files(root):
    """All files of the tree, relative to the root, without what builds and git leave there."""
    found = []
    for path in sorted(root.rglob("*")):
        relative = path.relative_to(root)
        top = relative.parts[0]
        built = top == "build" or top.startswith("build-") or "__pycache__" in relative.parts
        if path.is_file() and top != ".git" and not built:
            found.append(relative)
    return found


def text_of(root, path):
    """The file's text, or "" for a binary file."""
    data = (root / path).read_bytes()
    return "" if b"\0" in data else data.decode("utf-8", errors="replace")


def folder_of(path):
    """`cost` for src/cost/roofline.cc; "" for what is not in a folder of src/."""
    return path.parts[1] if path.parts[0] == "src" and len(path.parts) > 2 else ""


def is_test(path):
    return path.name.endswith("_test.cc")


def is_cpp(path):
    return path.suffix in (".h", ".cc")


# --- (a) includes --------------------------------------------------------------------------------


def owners_of_public_headers(files, report):
    """The src folder of each public header: the one that has the .cc of the same stem."""
    owners = {}
    for header in files:
        if header.parts[:2] != ("include", "lacuna"):
            continue
        folders = sorted({folder_of(path) for path in files
                          if folder_of(path) and path.name == header.stem + ".cc"})
        if len(folders) == 1:
            owners[header.name] = folders[0]
        else:
            where = " and ".join(folders) if folders else "no folder"
            report.add(header, 1, f"{header.stem}.cc is in {where} of src/; "
                                  "allowed: exactly one folder, which owns the header")
    return owners


def may_include(folder, other):
    rank, other_rank = (min(ORDER.index(name), LAST_RANK) for name in (folder, other))
    return folder == other or other_rank < rank


def include_problem(path, target, files, owners):
    """Why the file may not include the target, or ""."""
    public_header = path.parts[0] == "include"
    folder = owners.get(path.name, "") if public_header else folder_of(path)
    if target in TEST_HEADERS:
        return "" if TEST_HEADERS[target](path) else "is for tests only"
    first, _, rest = target.partition("/")
    if first == "lacuna":
        if pathlib.Path("include", target) not in files:
            return "is not in include/"
        other = owners.get(rest, "")
    elif public_header:
        return "is private; a public header includes public headers only"
    elif pathlib.Path("src", target) in files and rest:
        other = first
    else:
        return 'is not in the tree; written as "lacuna/name.h" or "folder/name.h"'
    if folder in ORDER and other in ORDER and not may_include(folder, other):
        return f"belongs to {other}, which stands to the right of {folder}"
    return ""


def check_includes(root, files, report):
    owners = owners_of_public_headers(files, report)
    known = set(files)
    for path in files:
        if not is_cpp(path) or path.parts[0] not in ("src", "include"):
            continue
        if folder_of(path) and folder_of(path) not in ORDER:
            report.add(path, 1, f"the folder {folder_of(path)} is not in the order of the pipeline")
            continue
        pattern = r'^[ \t]*#[ \t]*include[ \t]*(?:"([^"]+)"|<(lacuna/[^>]+)>)'
        text = text_of(root, path)
        for match in re.finditer(pattern, text, re.MULTILINE):
            target = match[1] or match[2]
            problem = include_problem(path, target, known, owners)
            if problem:
                line = text.count("\n", 0, match.start()) + 1
                report.add(path, line, f'"{target}" {problem}')


# --- (b) what docs name --------------------------------------------------------------------------


def doc_files(files):
    return [path for path in files if path.suffix == ".md"
            and (path.parts[0] == "docs" or str(path) in ("README.md", "CONTRIBUTING.md"))]


def quoted_tokens(text):
    """(line, token) of each inline `token` outside fenced blocks."""
    fenced = False
    for number, line in enumerate(text.split("\n"), start=1):
        if line.lstrip().startswith("```"):
            fenced = not fenced
        elif not fenced:
            for token in re.findall(r"`([^`]+)`", line):
                yield number, token


def named_path(token):
    """The path of the tree that a token names, or "".

    `./dev test` names dev. Otherwise a token is a path if it holds only path characters and has a
    slash or a suffix of DOC_SUFFIXES. Not paths: build folders, absolute paths and ~, and a slash
    before a single letter or a number, as in bytes/s or 1/2.
    """
    command = re.match(r"\./(\S+)", token)
    if command:
        token = command[1]
    if not re.fullmatch(r"\.?\w[\w.+-]*(/[\w.+-]+)*/?", token) or token in FOREIGN_FILES:
        return ""
    if re.match(r"build(-\w+)?(/|$)", token) or re.search(r"/(\w|\d+)$", token):
        return ""
    return token if command or "/" in token or token.endswith(DOC_SUFFIXES) else ""


def path_exists(root, doc, token, names):
    if "/" not in token and token in names:
        return True
    places = (root, root / "include", root / "src", (root / doc).parent)
    return any((place / token).exists() for place in places)


def named_symbol(token):
    """The words of a C++ symbol: `lacuna::Topology::row` and `edges()` are ones; [] if it is none."""
    name = token.removesuffix("()")
    if not re.fullmatch(r"~?[A-Za-z_]\w*(::~?[A-Za-z_]\w*)*", name):
        return []
    words = [word.lstrip("~") for word in name.split("::")]
    if words[0] in FOREIGN_NAMESPACES or (name == token and len(words) == 1):
        return []
    return words[1:] if words[0] == "lacuna" and len(words) > 1 else words


def words_of_sources(root, files):
    """For each C++ file of include/ and src/ the set of its words, comments left out."""
    sources = []
    for path in files:
        if is_cpp(path) and path.parts[0] in ("include", "src"):
            code = re.sub(r"//[^\n]*|/\*.*?\*/", " ", text_of(root, path), flags=re.DOTALL)
            sources.append(set(re.findall(r"\w+", code)))
    return sources


def check_docs(root, files, report):
    sources = words_of_sources(root, files)
    names = {path.name for path in files}
    for doc in doc_files(files):
        text = text_of(root, doc)
        for line, token in quoted_tokens(text):
            path, words = named_path(token), named_symbol(token)
            if path and not path_exists(root, doc, path, names):
                report.add(doc, line, f"`{token}` names a path that is not in the tree")
            elif words and not any(source.issuperset(words) for source in sources):
                report.add(doc, line, f"`{token}` names a symbol that no file of include/ or src/ has")
        for match in re.finditer(r"\]\(([^)#\s]+)[^)]*\)", text):
            if ":" not in match[1] and not (root / doc).parent.joinpath(match[1]).exists():
                line = text.count("\n", 0, match.start()) + 1
                report.add(doc, line, f"the link {match[1]} leads nowhere")


# --- (c) names, (d) sizes, (e) text --------------------------------------------------------------


def check_names(files, report):
    for path in files:
        for part in path.parts:
            stem = part.split(".")[0].lower()
            if any(stem == name or stem.endswith("_" + name) for name in FORBIDDEN_NAMES):
                report.add(path, 1, f"'{part}' names no noun of the pipeline")


def check_sizes(root, files, report):
    for path in files:
        if not is_cpp(path) and path.suffix != ".py":
            continue
        lines = text_of(root, path).count("\n")
        if path.parts[0] == "include" and lines >= MAX_HEADER_LINES:
            report.add(path, lines, f"a public header stays under {MAX_HEADER_LINES} lines")
        elif lines > MAX_SOURCE_LINES:
            report.warnings.append(f"{path}: {lines} lines; split it by meaning, if there is one")


def check_text(root, files, report):
    for path in files:
        for number, line in enumerate(text_of(root, path).split("\n"), start=1):
            for pattern, what in FORBIDDEN_TEXT.items():
                if re.search(pattern, line):
                    report.add(path, number, what)


def check(root):
    files = tree_files(root)
    report = Report()
    check_includes(root, files, report)
    check_docs(root, files, report)
    check_names(files, report)
    check_sizes(root, files, report)
    check_text(root, files, report)
    return report


def main():
    root = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else pathlib.Path(__file__).parents[1]
    report = check(root)
    for warning in report.warnings:
        print(f"warning: {warning}")
    for violation in report.violations:
        print(violation)
    print(f"check_tree: {len(tree_files(root))} files, {len(report.violations)} violations")
    sys.exit(1 if report.violations else 0)


if __name__ == "__main__":
    main()
