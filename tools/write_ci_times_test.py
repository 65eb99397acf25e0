import unittest

import write_ci_times

PAGE = f"# Head\n{write_ci_times.BEGIN}old\n{write_ci_times.END}tail\n"


class WriteCiTimes(unittest.TestCase):
    def test_table_replaces_only_what_stands_between_the_marks(self):
        page = write_ci_times.replace_between_marks(PAGE, "new\n")
        self.assertEqual(page, PAGE.replace("old", "new"))

    def test_rows_and_their_sum(self):
        table = write_ci_times.table([["./dev lint", "build", "70"], ["./dev test", "test", "5"]])
        self.assertIn("| `./dev lint` | build | 70 |\n", table)
        self.assertTrue(table.endswith("| 75 |\n"))

    def test_page_without_marks_is_an_error(self):
        with self.assertRaisesRegex(SystemExit, "marks"):
            write_ci_times.replace_between_marks("# Head\n", "new\n")


if __name__ == "__main__":
    unittest.main()
