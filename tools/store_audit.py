"""Audits Gemma 3 270M as the demo does, over more rounds, for the documents: docs/data/audit.json and
the picture of its page, docs/images/audit.png, which chromium takes.

    store_audit.py PROGRAM [--picture]

With --picture nothing is audited: the picture is taken of the audit that is stored.
"""

import json
import pathlib
import shutil
import subprocess
import sys
import tempfile

import demo
from fetch_models import GEMMA, default_cache_dir

ROOT = pathlib.Path(__file__).resolve().parent.parent
STORED = ROOT / "docs/data/audit.json"
PICTURE = ROOT / "docs/images/audit.png"
WIDTH, HEIGHT = 1280, 1400  # down to the first exact figures
MOST_BYTES = 200_000


def store(program):
    model = default_cache_dir() / "models" / GEMMA.file_name
    document = json.loads(demo.audit(program, model, "--json"))
    STORED.write_text(json.dumps(document, ensure_ascii=False, separators=(",", ":")) + "\n",
                      encoding="utf-8")


def take_picture(program):
    browser = shutil.which("chromium")
    if browser is None:
        sys.exit("store_audit: chromium is not installed")
    PICTURE.parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        page = pathlib.Path(folder) / "audit.html"
        subprocess.run([program, "report", STORED, "--html", page], check=True,
                       stdout=subprocess.DEVNULL)
        subprocess.run([browser, "--headless=new", "--no-sandbox", "--disable-gpu",
                        "--hide-scrollbars", f"--user-data-dir={folder}/profile",
                        f"--window-size={WIDTH},{HEIGHT}", f"--screenshot={PICTURE}",
                        page.as_uri()], check=True, stderr=subprocess.DEVNULL, timeout=120)
    size = PICTURE.stat().st_size
    if size > MOST_BYTES:
        sys.exit(f"store_audit: {PICTURE.name} has {size} bytes; allowed: at most {MOST_BYTES}")


def main():
    program = str(pathlib.Path(sys.argv[1]).resolve())
    if "--picture" not in sys.argv[2:]:
        store(program)
    take_picture(program)


if __name__ == "__main__":
    main()
