"""Lays made reports side by side."""

import unittest

import demo


def report(pairs, hops):
    total = {key: pairs for _, _, key in demo.ROWS}
    phases = {"prefill": {"total": total},
              "decode": {"total": total, "policies": {"paged": {"kv_held_bytes": 64}}}}
    return {"phases": phases, "hops": hops, "first_layer": 5, "reach_tokens": 7}


class Demo(unittest.TestCase):
    def rows(self):
        reports = {"own table": report(1234567, 1), "window only": report("18446744073709551616", None)}
        return {row[0]: row[1:] for row in demo.side_by_side(reports)}

    def test_counts_of_any_size_stand_under_their_table(self):
        rows = self.rows()
        self.assertEqual(rows[""], ["own table", "window only"])
        self.assertEqual(rows["prefill: pairs"], ["1,234,567", "18,446,744,073,709,551,616"])

    def test_every_policy_has_a_row(self):
        self.assertEqual(self.rows()["decode: KV that paged holds, bytes"], ["64", "64"])

    def test_unreachable_is_a_dash(self):
        self.assertEqual(self.rows()["hops, first token to last"], ["1", "–"])


if __name__ == "__main__":
    unittest.main()
