"""Plants each violation in a small tree of its own; check_tree must find it, and nothing else."""

import pathlib
import tempfile
import unittest

import check_tree

GOOD_TREE = {
    "README.md": "Run `./dev test`; read `docs/`, `lacuna/topology.h` and `lacuna::Topology::row`.\n",
    "dev": "",
    "docs/architecture.md": "`Topology` has `edges()`; see [the head](../README.md) and `bytes/s`.\n",
    "include/lacuna/error.h": "#pragma once\n",
    "include/lacuna/topology.h": '#include "lacuna/error.h"\n'
                                 "struct Topology { void row(); int edges(); };\n",
    "src/base/error.cc": '#include "lacuna/error.h"\n#include <string>\n',
    "src/topology/topology.cc": '#include "lacuna/topology.h"\n#include "topology/parser.h"\n',
    "src/topology/parser.h": "",
    "src/topology/topology_test.cc": '#include "problems.h"\n#include "oracle.h"\n',
    "src/bench/decode.cc": '#include "problems.h"\n',
    "src/cost/cost.cc": '#include "lacuna/topology.h"\n#include "topology/parser.h"\n',
    "tests/problems.h": "",
    "tests/oracle.h": "",
}


class CheckTree(unittest.TestCase):
    def check_files(self, planted):
        """The report on the good tree with the planted files added or put in the place of its own."""
        with tempfile.TemporaryDirectory() as name:
            root = pathlib.Path(name)
            for path, text in {**GOOD_TREE, **planted}.items():
                (root / path).parent.mkdir(parents=True, exist_ok=True)
                (root / path).write_text(text, encoding="utf-8")
            return check_tree.check(root)

    def assert_finds(self, path, text, *expected):
        violations = self.check_files({path: text}).violations
        self.assertEqual(len(violations), 1, violations)
        for part in expected:
            self.assertIn(part, violations[0])

    def test_good_tree_has_no_violation(self):
        report = self.check_files({})
        self.assertEqual(report.violations, [])
        self.assertEqual(report.warnings, [])

    # --- includes

    def test_public_header_of_a_folder_to_the_right(self):
        self.assert_finds("src/base/file.cc", '\n#include "lacuna/topology.h"\n',
                          "src/base/file.cc:2:", "belongs to topology", "right of base")

    def test_private_header_of_a_folder_to_the_right(self):
        self.assert_finds("src/machine/probe.cc", '#include "topology/parser.h"\n',
                          "src/machine/probe.cc:1:", "belongs to topology")

    def test_public_header_that_includes_to_the_right(self):
        self.assert_finds("include/lacuna/error.h", '#include "lacuna/topology.h"\n',
                          "belongs to topology")

    def test_public_header_in_angle_brackets_is_seen(self):
        self.assert_finds("src/base/file.cc", "#include <lacuna/topology.h>\n", "belongs to topology")

    def test_public_header_that_includes_a_private_one(self):
        self.assert_finds("include/lacuna/topology.h",
                          '#include "topology/parser.h"\nTopology row edges\n', "is private")

    def test_include_without_its_folder(self):
        self.assert_finds("src/topology/parser.cc", '#include "parser.h"\n', "is not in the tree")

    def test_include_of_a_missing_public_header(self):
        self.assert_finds("src/base/file.cc", '#include "lacuna/file.h"\n', "is not in include/")

    def test_tests_own_headers_elsewhere(self):
        self.assert_finds("src/cost/model.cc", '#include "problems.h"\n', "is for tests only")
        self.assert_finds("src/bench/train.cc", '#include "oracle.h"\n', "is for tests only")

    def test_command_line_and_python_do_not_include_each_other(self):
        planted = {"src/cli/table.h": "", "src/python/module.cc": '#include "cli/table.h"\n'}
        self.assertEqual(len(self.check_files(planted).violations), 1)

    def test_public_header_without_its_source(self):
        self.assert_finds("include/lacuna/lonely.h", "", "lonely.cc is in no folder")

    def test_public_header_with_two_sources(self):
        self.assert_finds("src/cli/topology.cc", "", "topology.cc is in cli and topology")

    def test_folder_outside_the_order(self):
        self.assert_finds("src/extras/extra.cc", "", "extras is not in the order")

    # --- docs

    def test_missing_path_in_docs(self):
        self.assert_finds("docs/math.md", "one\n`src/topology/gone.cc`\n", "docs/math.md:2:", "path")
        self.assert_finds("CONTRIBUTING.md", "`gone.md`\n", "path")
        self.assert_finds("docs/decisions/1.md", "`./build.sh now`\n", "path")

    def test_missing_symbol_in_docs(self):
        self.assert_finds("docs/math.md", "`lacuna::Gone`\n", "symbol")
        self.assert_finds("docs/math.md", "`Topology::gone`\n", "symbol")
        self.assert_finds("docs/math.md", "`gone()`\n", "symbol")

    def test_symbol_that_stands_only_in_a_comment(self):
        planted = {"docs/math.md": "`gone()`\n", "src/base/old.cc": "// gone\n/* gone */\n"}
        self.assertEqual(len(self.check_files(planted).violations), 1)

    def test_link_that_leads_nowhere(self):
        self.assert_finds("docs/math.md", "see [this](gone.txt)\n", "leads nowhere")

    def test_tokens_that_name_nothing_of_the_tree(self):
        text = ("`build/lacuna` `build-asan/x` `~/.cache/lacuna` `$HOME/x`\n"
                "`src/*/x.cc` `src/<folder>`\n"
                "`config.json` `bytes/s` `1/2` `std::span` `window(512)` `--kv-dtype` `O(n)`\n"
                "```\n`src/gone.cc`\n```\n[web](https://example.com/x)\n")
        self.assertEqual(self.check_files({"docs/math.md": text}).violations, [])

    # --- names, sizes, text

    def test_names_that_are_no_nouns(self):
        for path in ("src/base/utils.cc", "src/misc/x.txt", "tools/helpers.py", "cmake/common.cmake",
                     "src/base/file_impl.cc"):
            violations = self.check_files({path: ""}).violations
            self.assertTrue(any("no noun" in line for line in violations), path)

    def test_long_public_header(self):
        self.assert_finds("include/lacuna/error.h", "\n" * 200, "under 200 lines")

    def test_long_source_is_a_warning(self):
        report = self.check_files({"src/base/file.cc": "\n" * 501})
        self.assertEqual(report.violations, [])
        self.assertIn("501 lines", report.warnings[0])

    def test_text_that_does_not_belong_here(self):
        for text in ("see /wo" "rk/main", "in /ro" "ot/x", "from pypi" ".org", "deb.debian" ".org",
                     "a sess" "ion", "Sess" "ions"):
            self.assert_finds("src/base/file.cc", f"\n// {text}\n", "src/base/file.cc:2:")

    def test_what_builds_leave_is_not_looked_at(self):
        planted = {"build/utils.cc": "", "build-asan/misc/x.cc": "", ".git/common.txt": ""}
        self.assertEqual(self.check_files(planted).violations, [])


if __name__ == "__main__":
    unittest.main()
