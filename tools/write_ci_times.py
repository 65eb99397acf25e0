"""Writes the seconds of each stage of a CI run into the table of docs/ci.md.

    write_ci_times.py TIMES FILE.md

TIMES holds a line `command<TAB>step<TAB>seconds` a step, as ./dev adds them. The table replaces what
stands between the two marks in FILE.md.
"""

import os
import pathlib
import sys

BEGIN, END = "<!-- times: begin -->\n", "<!-- times: end -->\n"


def table(rows):
    lines = ["| command | step | seconds |", "| --- | --- | ---: |"]
    lines += [f"| `{command}` | {step} | {seconds} |" for command, step, seconds in rows]
    lines.append(f"| all | {os.cpu_count()} cores | {sum(int(row[2]) for row in rows)} |")
    return "\n".join(lines) + "\n"


def replace_between_marks(text, new):
    head, begin, rest = text.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not begin or not end:
        sys.exit(f"write_ci_times: the marks {BEGIN.strip()} and {END.strip()} are missing")
    return head + begin + new + end + tail


def main():
    times, page = map(pathlib.Path, sys.argv[1:])
    rows = [line.split("\t") for line in times.read_text(encoding="utf-8").splitlines()]
    page.write_text(replace_between_marks(page.read_text(encoding="utf-8"), table(rows)),
                    encoding="utf-8")


if __name__ == "__main__":
    main()
