"""An audit's page in a real browser: no console message. Skipped where there is no chromium.

    page_browser_test.py PROGRAM
"""

import pathlib
import shutil
import subprocess
import sys
import tempfile


def main():
    browser = shutil.which("chromium")
    if browser is None:
        print("skipped: chromium is not installed")
        return 77
    with tempfile.TemporaryDirectory() as folder:
        page = pathlib.Path(folder) / "audit.html"
        subprocess.run([sys.argv[1], "report", "tests/corpus/audit_report/two_tables.json",
                        "--html", page], check=True, stdout=subprocess.DEVNULL, timeout=60)
        result = subprocess.run([browser, "--headless=new", "--no-sandbox", "--disable-gpu",
                                 "--enable-logging=stderr", f"--user-data-dir={folder}/profile",
                                 "--dump-dom", page.as_uri()], capture_output=True, check=True,
                                timeout=120, text=True)
    assert "<h2>Verdicts</h2>" in result.stdout and "<svg" in result.stdout
    assert "CONSOLE" not in result.stderr, result.stderr
    return 0


if __name__ == "__main__":
    sys.exit(main())
