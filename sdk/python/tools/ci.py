"""Checks everything: text, types, what is made, the packages, and the tests of the installed wheel.

    python3 sdk/python/tools/ci.py PROGRAMS [TOOLS]
    python3 sdk/python/tools/ci.py --make [TOOLS]

``PROGRAMS`` is the folder with the built programs. It must be run as root, since sessions are
different for root and for others; the ordinary user exists as a number only. Tools are installed
from the package index into an environment that is thrown away, or into ``TOOLS``, which everybody
must be able to read and which is used again the next time. With ``--make`` nothing is checked:
what is made is made anew, which is due when the daemon's description or ``_async`` has changed.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

PACKAGE = Path(__file__).resolve().parent.parent
WORKSPACE = PACKAGE.parent.parent / "Cargo.toml"
PROGRAMS = ["cowork", "coworkd", "cowork-keeper", "cowork-init", "cowork-egress"]
USER = 54_321
TIME = 600
PLAIN = {"PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", "LANG": "C.UTF-8"}
WITHOUT_INDEX = ["--no-index", "--disable-pip-version-check", "-q"]


class Failed(Exception):
    """A check does not hold."""


def run(*words: str | Path, cwd: Path = PACKAGE, user: int = 0, **environment: str) -> str:
    """Run a program, show what it said when it is over, and fail if it fails."""
    line = " ".join(str(word) for word in words) + (f" (user {user})" if user else "")
    ordinary: dict[str, object] = {"user": user, "group": user, "extra_groups": []} if user else {}
    start = time.monotonic()
    done = subprocess.run(  # type: ignore[call-overload]
        [str(word) for word in words],
        cwd=cwd,
        env={**(PLAIN if user else os.environ), **environment},
        timeout=TIME,
        check=False,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        **ordinary,
    )
    print(f"+ {line}  [{time.monotonic() - start:.1f} s]\n{done.stdout}", end="", flush=True)
    if done.returncode:
        raise Failed(f"`{line}` ended with {done.returncode}")
    return str(done.stdout)


def interpreter() -> str:
    """A Python that every user can execute."""
    for candidate in (sys.executable, "/usr/bin/python3"):
        own = Path(candidate).resolve()
        if all(part.stat().st_mode & 0o005 == 0o005 for part in [own, *own.parents]):
            return candidate
    raise Failed("there is no Python that an ordinary user can execute")


def tools(folder: Path) -> Path:
    """An environment with the tools, made once for every list of them."""
    python = folder / "bin" / "python"
    requirements = PACKAGE / "tools" / "requirements.txt"
    # Written last: an installation that broke off has none.
    stamp = folder / "installed.txt"
    if not stamp.exists() or stamp.read_text() != requirements.read_text():
        run(interpreter(), "-m", "venv", "--clear", folder)
        run(python, "-m", "pip", "install", "-q", "--disable-pip-version-check", "-r", requirements)
        shutil.copy(requirements, stamp)
    return python


def check_text(python: Path) -> None:
    """Style, types, and whether what is made was made."""
    cache = f"--cache-dir={python.parent.parent / 'cache'}"
    run(python, "-m", "ruff", "format", "--check", cache, ".")
    run(python, "-m", "ruff", "check", cache, ".")
    run(python, "tools/answers.py", "--check")
    run(python, "tools/twin.py", "--check")
    run(python, "-m", "mypy", cache)


def packages(python: Path, scratch: Path) -> Path:
    """Build the source package, from it the wheel, and install that where nothing else is."""
    source = scratch / "source"
    unwanted = shutil.ignore_patterns("*.egg-info", "__pycache__", ".*_cache", "build", "dist")
    shutil.copytree(PACKAGE, source, ignore=unwanted)
    build = "import sys, setuptools.build_meta as b; print(b.build_sdist(sys.argv[1]))"
    run(python, "-c", build, scratch, cwd=source)
    [archive] = scratch.glob("cowork-*.tar.gz")
    wheel = ["-m", "pip", "wheel", *WITHOUT_INDEX, "--no-build-isolation", "--no-deps"]
    run(python, *wheel, "-w", scratch, archive, cwd=scratch)
    [made] = scratch.glob("cowork-*-py3-none-any.whl")
    run(interpreter(), "-m", "venv", scratch / "fresh")
    fresh = scratch / "fresh" / "bin" / "python"
    run(fresh, "-m", "pip", "install", *WITHOUT_INDEX, made)
    [version] = re.findall(r'^version = "(.*)"$', WORKSPACE.read_text(), re.MULTILINE)[:1]
    said = run(fresh, "-c", "import cowork; print(cowork.__version__)", cwd=scratch).strip()
    if f"cowork-{said}-" not in made.name or said != version:
        raise Failed(f"the workspace is {version}, the package {said}, the wheel {made.name}")
    return fresh


def typed(python: Path, fresh: Path, scratch: Path) -> None:
    """Whether those who install the wheel have its types."""
    examples = scratch / "source" / "examples"
    cache = f"--cache-dir={python.parent.parent / 'cache-wheel'}"
    words = ["-m", "mypy", "--strict", cache, "--python-executable", str(fresh)]
    run(python, *words, *sorted(examples.glob("*.py")), cwd=examples)


def test(python: Path, fresh: Path, scratch: Path, user: int) -> None:
    """Run the tests of the installed wheel as a user."""
    home = scratch / f"home-{user}"
    shutil.copytree(PACKAGE / "tests", home / "tests", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(PACKAGE / "examples", home / "examples")
    shutil.copy(PACKAGE / "pyproject.toml", home)
    for part in [home, *home.rglob("*")]:
        os.chown(part, user, user)
    site = next((fresh.parent.parent / "lib").glob("python3.*/site-packages"))
    run(
        *(python, "-B", "-m", "pytest", "-q", "-p", "no:cacheprovider", "--durations=5"),
        cwd=home,
        user=user,
        HOME=str(home),
        PYTHONPATH=str(site),
        COWORK_PROGRAMS=str(scratch / "programs"),
        COWORK_SDK_PYTHON=str(fresh),
    )


def together(*checks: Callable[[], object]) -> None:
    """Carry out checks at the same time; the first failure counts."""
    with ThreadPoolExecutor(len(checks)) as pool:
        for running in [pool.submit(check) for check in checks]:
            running.result()


def main() -> None:
    """Check everything."""
    if len(sys.argv) not in {2, 3}:
        sys.exit(str(__doc__).strip())
    make = sys.argv[1] == "--make"
    if os.geteuid() != 0 and not make:
        sys.exit("these tests start programs as root and as another user: run them as root")
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    with tempfile.TemporaryDirectory(prefix="cowork-sdk-ci-", dir="/var/tmp") as name:
        scratch = Path(name)
        scratch.chmod(0o755)
        python = tools(Path(sys.argv[2]).absolute() if sys.argv[2:] else scratch / "tools")
        if make:
            run(python, "tools/answers.py")
            run(python, "tools/twin.py")
            return
        (scratch / "programs").mkdir()
        for program in PROGRAMS:
            shutil.copy(Path(sys.argv[1]) / program, scratch / "programs")
            (scratch / "programs" / program).chmod(0o755)
        fresh = packages(python, scratch)
        together(
            lambda: test(python, fresh, scratch, 0),
            lambda: test(python, fresh, scratch, USER),
            lambda: check_text(python),
            lambda: typed(python, fresh, scratch),
        )
    print("all is well")


if __name__ == "__main__":
    try:
        main()
    except (Failed, OSError, subprocess.TimeoutExpired) as error:
        sys.exit(f"sdk: {error}")
