"""Build the wheel and the sdist, install each in an environment of its own, and use it.

`make package` runs this script. The files are in dist/ afterwards. The environments take numpy,
torch and the other dependencies from the environment that runs the script, so that only this
package is installed, without a network.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from email.parser import HeaderParser
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).parent.parent
DIST = ROOT / "dist"
CORE = {"numpy", "scipy", "torch", "scikit-learn", "safetensors"}
"""The only packages that an installation without extras needs."""
USE = """
import sys
from importlib.metadata import version
from pathlib import Path

import shortlist as sl

assert Path(sl.__file__).is_relative_to(sys.prefix), f"{sl.__file__} is not the installed package"
assert version("shortlist") == sl.__version__
select, test = sl.datasets.gaussian(600, n_classes=3, dimension=3).split(400)
model = sl.SplitConformal("lac").fit(select.posterior, select.y)
model.save("model")
sets = sl.load("model").predict_set(test.posterior, accuracy=0.9)
assert sets.guarantee.accuracy == 0.9
sl.report(model, test.posterior, test.y, path="report.html")
"""
"""A program that uses the installed package, its data files and its saved models."""


def main() -> None:
    """Build both files, and check each of them."""
    wheel, sdist = build()
    check_contents(wheel, sdist)
    for archive in (wheel, sdist):
        with TemporaryDirectory() as folder:
            use(archive, Path(folder))
        print(f"{archive.relative_to(ROOT)}: {archive.stat().st_size:,} bytes; installed and used")


def build() -> tuple[Path, Path]:
    """Return the paths of a new wheel and a new sdist in dist/."""
    for old in DIST.glob("shortlist-*"):
        old.unlink()
    run([sys.executable, "-m", "hatchling", "build", "-d", str(DIST)], ROOT)
    (wheel,), (sdist,) = DIST.glob("*.whl"), DIST.glob("*.tar.gz")
    return wheel, sdist


def check_contents(wheel: Path, sdist: Path) -> None:
    """Raise if a file of the package is missing, or if there are dependencies beyond the core."""
    source = ROOT / "src" / "shortlist"
    files = {
        str(path.relative_to(source.parent))
        for path in source.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    with zipfile.ZipFile(wheel) as archive:
        missing = files - set(archive.namelist())
        (described,) = (n for n in archive.namelist() if n.endswith(".dist-info/METADATA"))
        metadata = HeaderParser().parsestr(archive.read(described).decode())
    with tarfile.open(sdist) as sources:
        names = {name.partition("/")[2] for name in sources.getnames()}
    missing |= {f"src/{name}" for name in files} - names
    if missing:
        sys.exit(f"missing in dist/: {', '.join(sorted(missing))}")
    needed = {
        re.split(r"[^\w-]", requirement)[0]
        for requirement in metadata.get_all("Requires-Dist", [])
        if "extra ==" not in requirement
    }
    if needed != CORE:
        sys.exit(f"an installation without extras needs {sorted(needed)}, not {sorted(CORE)}")


def use(archive: Path, folder: Path) -> None:
    """Install a file in a new environment and use the package."""
    environment = folder / "environment"
    venv.create(environment, with_pip=False)
    bin_folder = "Scripts" if sys.platform == "win32" else "bin"
    python = str(environment / bin_folder / "python")
    base = {"base": str(environment), "platbase": str(environment)}
    packages = Path(sysconfig.get_path("purelib", "venv", vars=base))
    # Only this folder is added, and not its .pth files, which would add the source of the package.
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    install = ["--no-deps", "--no-build-isolation", "--no-index", "--ignore-installed"]
    run([python, "-m", "pip", "install", "--quiet", *install, str(archive)], folder)
    run([python, "-c", USE], folder)
    run([str(environment / bin_folder / "shortlist"), "--version"], folder)


def run(command: list[str], folder: Path) -> None:
    """Run a command, and end the program if it fails."""
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(command)}\n{done.stdout}{done.stderr}")


if __name__ == "__main__":
    main()
