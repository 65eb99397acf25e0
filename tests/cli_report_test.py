"""`lacuna report` and `lacuna audit --html` from outside, on a tiny model.

    cli_report_test.py PROGRAM
"""

import copy
import html
import html.parser
import json
import re
import unittest
import xml.etree.ElementTree

from program import FOLDER, ROOT, assert_refused, check, main, run, text

TINY = ROOT / "tests/data/models/tiny-gemma3.gguf"
REQUEST = ["--model", TINY, "--prompt", 60, "--generate", 9, "--against", "full", "--against",
           "window(8)", "--file", ROOT / "README.md"]
VOID = {"meta"}
_KEPT = {}


def audited():
    """One audit's document and page; its progress goes to the standard error stream."""
    if not _KEPT:
        result = run("audit", *REQUEST, "--json", "--html", FOLDER.path / "audit.html")
        assert result.returncode == 0, result.stderr
        _KEPT["document"] = json.loads(result.stdout)
        _KEPT["page"] = (FOLDER.path / "audit.html").read_text(encoding="utf-8")
    return copy.deepcopy(_KEPT["document"]), _KEPT["page"]


def page_of(document):
    out = FOLDER.path / "again.html"
    text("report", FOLDER.write("again.json", document), "--html", out)
    return out.read_text(encoding="utf-8")


class Nesting(html.parser.HTMLParser):
    """Tags open and close in order; collects the words between them, and the tags."""

    def __init__(self):
        super().__init__()
        self.open, self.words, self.tags = [], "", []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open and self.open.pop() == tag, tag

    def handle_data(self, data):
        self.words += data


def read(page):
    nesting = Nesting()
    nesting.feed(page)
    nesting.close()
    assert nesting.open == [], nesting.open
    return nesting


class Rebuilt(unittest.TestCase):
    def test_exact_lines_are_those_that_another_run_printed(self):
        printed = run("audit", *REQUEST)
        self.assertEqual(printed.returncode, 0, printed.stderr)
        after = printed.stdout.partition("\n\n")[2]  # behind the predictions
        document = audited()[0]
        again = text("report", FOLDER.write("a.json", document))
        exact = re.compile(r"^(?:(?:holds|FAILS) \w+ \(exact\)|.*(?:pairs, (?:prompt|steps) |bytes held at the "
                           r"end|bytes read, steps |first layer, )).*$", re.MULTILINE)
        self.assertGreater(len(exact.findall(again)), 20)
        self.assertEqual(exact.findall(again), exact.findall(after))
        self.assertEqual(again.splitlines()[0], after.splitlines()[0])

    def test_the_page_is_the_same_from_the_file(self):
        document, page = audited()
        self.assertEqual(page_of(document), page)


class Page(unittest.TestCase):
    def test_every_verdict_stands_in_a_well_formed_page(self):
        document, page = audited()
        nesting = read(page)
        xml.etree.ElementTree.fromstring(page.partition("\n")[2])  # without the doctype
        for verdict in document["verdicts"]:
            self.assertIn(verdict["says"], nesting.words)
            self.assertIn(verdict["next"], nesting.words)

    def test_the_likely_cause_of_what_fails_is_shown(self):
        document = audited()[0]
        document["verdicts"][0].update(holds=False, cause="keep-all")
        self.assertIn("likely cause: keep-all", read(page_of(document)).words)
        self.assertIn("likely cause: keep-all\n", text("report", FOLDER.path / "again.json"))

    def test_files_are_named_with_their_hashes(self):
        document, page = audited()
        for shown in [read(page).words, text("report", FOLDER.write("a.json", document))]:
            for file in [document["model_file"], *document["text"]["files"]]:
                self.assertIn(file["sha256"], shown)

    def test_exact_figures_open_on_the_cost_model_s_equations(self):
        document, page = audited()
        lines = [html.unescape(line) for line in re.findall(r"<p><code>([^<]*)</code></p>", page)]
        # 60 queries of 4 heads: rows in tiles of 16, the last of 12, each by whole tiles of 16 keys:
        # 16·16 + 16·32 + 16·48 + 12·64 = 2304. 68 tokens in pages of 64 with 128 bytes each.
        for line in ["full: edges E = n·(n + 1)/2 = 60·(60 + 1)/2 = 1830",
                     "full: needed = E·H = 1830·4 = 7320",
                     "full: executed in tiles = X·H = 2304·4 = 9216",
                     "full: held = N·P·pages(full)·c = 1·64·2·128 = 16384"]:
            self.assertIn(line, lines)
        sums = {line.split(" = ")[0]: line for line in lines if "Σ over layers" in line}
        for key in ["predicted_needed_pairs", "predicted_executed_pairs", "predicted_held_bytes",
                    "predicted_read_bytes", "predicted_step_executed_pairs"]:
            self.assertIn(key, sums)
        figures = [table[key] for table in [*document["tables"], document["int8_kv"]]
                   for key in ["predicted_executed_pairs", "predicted_read_bytes"]]
        for figure in figures:
            self.assertTrue(any(line.endswith(f" = {figure}") for line in lines), figure)

    def test_an_equation_that_gives_another_number_is_not_shown(self):
        document = audited()[0]
        self.assertTrue("needed = E·H = 1830" in page_of(document))
        for table in [*document["tables"], document["int8_kv"]]:
            for layer in table["layers"]:
                layer["predicted_needed_pairs"] += 1
        self.assertFalse("needed = E·H = 1830" in page_of(document))

    def test_nothing_is_loaded_or_run(self):
        page = audited()[1]
        for tag, attributes in read(page).tags:
            self.assertNotIn(tag, ("script", "link", "img", "iframe", "object"))
            self.assertFalse({"src", "href", "onload", "onclick"} & set(attributes), tag)
        self.assertNotRegex(page.replace("http://www.w3.org/2000/svg", ""), r"https?://|url\(")

    def test_it_has_its_headings_and_a_title_in_each_picture(self):
        tags = [tag for tag, _ in read(audited()[1]).tags]
        self.assertEqual(tags.count("h1"), 1)
        self.assertGreaterEqual(tags.count("h2"), 8)
        self.assertEqual(tags.count("svg"), 4)  # two kinds of layer, steps, roofline
        self.assertEqual(tags.count("title"), 5)


class Hostile(unittest.TestCase):
    def refused(self, content, *says):
        result = run("report", FOLDER.write("bad.json", content))
        assert_refused(self, result, ["bad.json", *says])

    def test_what_is_no_audit_is_named(self):
        self.refused("", "not JSON")
        self.refused("[" * 100000, "nested deeper")
        self.refused(b'{"format": "\xff"}', "not JSON")
        self.refused("[]", "an object")
        self.refused({"format": "other"}, "format", "lacuna-audit")
        self.refused({"format": "lacuna-audit", "format_version": 2}, "format_version is 2")

    def test_each_key_that_is_missing_or_of_another_type_is_refused_or_not_needed(self):
        document = audited()[0]
        for path in [["model", "source"], ["tables", 0, "table"], ["tables", 1, "held_bytes"],
                     ["tables", 0, "step_seconds", "p50"], ["verdicts", 0, "says"],
                     ["tables", 0, "rounds", 0, "step_seconds", 0], ["threads"],
                     ["tables", 0, "layers", 0, "num_q_heads"], ["int8_kv", "read_bytes"],
                     ["model_file", "sha256"], ["text", "files", 0, "path"]]:
            for value in [None, -1, [], {}, 1e300, 2**64 - 1]:
                bad = copy.deepcopy(document)
                place = bad
                for key in path[:-1]:
                    place = place[key]
                if value == -1 and path[-1] in ("p50", 0):
                    continue  # a number as any other
                place[path[-1]] = value
                names = [key for key in path if isinstance(key, str)]
                self.refused(bad, names[-1])
            if isinstance(path[-1], str):
                bad = copy.deepcopy(document)
                place = bad
                for key in path[:-1]:
                    place = place[key]
                del place[path[-1]]
                self.refused(bad, f"no key '{path[-1]}'")

    def test_names_are_escaped(self):
        document = audited()[0]
        evil = "</title><script>alert(1)</script>\x1b[2J\u202e\"'&"
        document["model"]["source"] = document["machine"]["cpu"] = evil
        for verdict in document["verdicts"]:
            verdict.update(name=evil, kind=evil, table=evil, says=evil, next=evil)
            verdict.update(holds=False, cause=evil)
        document["text"].update(package=evil)
        document["text"]["files"] = [{"path": evil, "size_bytes": 1, "sha256": evil}]
        for table in [*document["tables"], document["int8_kv"]]:
            table["table"] = evil
            table["step_parts_seconds"][evil] = 1.0
            for kind in table["kinds"]:
                kind["attend"] = evil
        page = page_of(document)
        read(page)
        self.assertNotIn("<script", page)
        for printed in [page, text("report", FOLDER.path / "again.json")]:
            self.assertNotIn("\x1b", printed)
            self.assertNotIn("\u202e", printed)

    def test_a_table_s_text_opens_no_file(self):
        document = audited()[0]
        for table in document["tables"]:
            for kind in table["kinds"]:
                kind["attend"] = "edges(file=/etc/passwd)"
        self.assertIn("its keys are in a file", page_of(document))

    def test_what_would_take_long_to_count_is_not_counted(self):
        document = audited()[0]
        document["request"]["prompt_tokens"] = 1 << 40
        for table in document["tables"]:
            table["length_tokens"] = 1 << 40
            for layer in [*table["kinds"], *table["layers"]]:
                layer["attend"] = "strided(7)"
        self.assertIn("the prompt is not of 1..8192", page_of(document))


class Stored(unittest.TestCase):
    def test_the_audit_in_the_documents_is_one_that_this_program_would_write(self):
        path = ROOT / "docs/data/audit.json"
        check(json.loads(path.read_text(encoding="utf-8")), "audit.schema.json", path)


class Compare(unittest.TestCase):
    def compare(self, a, b):
        return text("report", "--compare", FOLDER.write("a.json", a), FOLDER.write("b.json", b))

    def test_a_run_beside_itself_differs_in_nothing(self):
        document = audited()[0]
        rows = [line for line in self.compare(document, document).splitlines()[2:-1]]
        self.assertEqual(len(rows), 3 * 8)
        for row in rows:
            self.assertTrue(row.endswith("none"), row)

    def test_exact_figures_and_times_beyond_the_noise_are_named(self):
        a = audited()[0]
        b = copy.deepcopy(a)
        b["model"]["name"] = "other"
        b["tables"][0]["held_bytes"] += 5
        for key in b["tables"][1]["step_seconds"]:
            if key != "num_runs":
                b["tables"][1]["step_seconds"][key] *= 1000
        found = self.compare(a, b)
        self.assertTrue(found.startswith("differs: name: gemma3 | other\n"), found)
        self.assertRegex(found, r"held_bytes .* \+5\n")
        self.assertRegex(found, r"step_seconds .* 1000\.000 of A's\n")
        b["tables"][0]["first_token_seconds"]["num_runs"] = 1
        self.assertRegex(self.compare(a, b), r"first_token_seconds .* not known, one run\n")
        del b["tables"][2]
        self.assertIn("only in A: window(8)\n", self.compare(a, b))

    def test_flags_that_exclude_each_other_are_refused(self):
        path = FOLDER.write("a.json", audited()[0])
        assert_refused(self, run("report"), ["FILE"])
        assert_refused(self, run("report", path, "--compare", path, path), ["--compare"])


if __name__ == "__main__":
    main()
