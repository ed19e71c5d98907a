"""Checks everything: style, types, twins, tests as root and as an ordinary user, and the wheel.

    python3 sdk/python/tools/ci.py PROGRAMS [TOOLS]

``PROGRAMS`` is the folder with the built programs. It must be run as root, since sessions are
different for root and for others; the ordinary user exists as a number only. Tools are installed
from the package index into an environment that is thrown away, or into ``TOOLS``, which everybody
must be able to read and which is used again the next time.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent.parent
PROGRAMS = ["cowork", "coworkd", "cowork-keeper", "cowork-init", "cowork-egress", "cowork-broker"]
USER = 54_321
TIME = 900
PLAIN = {"PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", "LANG": "C.UTF-8"}


def run(*words: str | Path, cwd: Path = PACKAGE, user: int = 0, **environment: str) -> None:
    """Run a program; its failure is ours."""
    print("+", *words, f"(user {user})" if user else "", flush=True)
    ordinary: dict[str, object] = {"user": user, "group": user, "extra_groups": []} if user else {}
    subprocess.run(  # type: ignore[call-overload]
        [str(word) for word in words],
        cwd=cwd,
        env={**(PLAIN if user else os.environ), **environment},
        timeout=TIME,
        check=True,
        **ordinary,
    )


def interpreter() -> str:
    """A Python that every user can execute."""
    for candidate in (sys.executable, "/usr/bin/python3"):
        own = Path(candidate).resolve()
        if all(part.stat().st_mode & 0o005 == 0o005 for part in [own, *own.parents]):
            return candidate
    sys.exit("no Python that an ordinary user can execute")


def tools(folder: Path) -> Path:
    """An environment with the tools."""
    python = folder / "bin" / "python"
    if not python.exists():
        run(interpreter(), "-m", "venv", "--clear", folder)
    wanted = (PACKAGE / "tools" / "requirements.txt").read_text()
    stamp = folder / "installed.txt"
    if not stamp.exists() or stamp.read_text() != wanted:
        run(python, "-m", "pip", "install", "-q", "-r", PACKAGE / "tools" / "requirements.txt")
        stamp.write_text(wanted)
    return python


def check_text(python: Path) -> None:
    """Style, types, and whether what is made was made."""
    cache = f"--cache-dir={python.parent.parent / 'cache'}"
    run(python, "-m", "ruff", "format", "--check", cache, ".")
    run(python, "-m", "ruff", "check", cache, ".")
    run(python, "tools/twin.py", "--check")
    run(python, "-m", "mypy", cache)


def check_wheel(python: Path, scratch: Path) -> Path:
    """Build the wheel and install it into a fresh environment, without any index."""
    source = scratch / "source"
    shutil.copytree(PACKAGE, source, ignore=shutil.ignore_patterns("*.egg-info", "__pycache__"))
    wheels = scratch / "wheels"
    build = ["-m", "pip", "wheel", "-q", "--no-index", "--no-build-isolation", "--no-deps"]
    run(python, *build, "-w", wheels, ".", cwd=source)
    [wheel] = wheels.glob("cowork-*-py3-none-any.whl")
    fresh = scratch / "fresh"
    run(interpreter(), "-m", "venv", fresh)
    run(fresh / "bin" / "python", "-m", "pip", "install", "-q", "--no-index", wheel)
    return fresh / "bin" / "python"


def test(python: Path, installed: Path, scratch: Path, user: int) -> None:
    """Run the tests of the installed wheel as a user."""
    home = scratch / f"home-{user}"
    shutil.copytree(PACKAGE / "tests", home / "tests")
    shutil.copytree(PACKAGE / "examples", home / "examples")
    shutil.copy(PACKAGE / "pyproject.toml", home)
    for part in [home, *home.rglob("*")]:
        os.chown(part, user, user)
    site = next((installed.parent.parent / "lib").glob("python3.*/site-packages"))
    run(
        *(python, "-B", "-m", "pytest", "-q", "-p", "no:cacheprovider"),
        cwd=home,
        user=user,
        HOME=str(home),
        PYTHONPATH=str(site),
        COWORK_PROGRAMS=str(scratch / "programs"),
    )


def main() -> None:
    """Check everything."""
    if len(sys.argv) not in {2, 3}:
        sys.exit(str(__doc__).strip())
    if os.geteuid() != 0:
        sys.exit("these tests start programs as root and as another user: run them as root")
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    with tempfile.TemporaryDirectory(prefix="cowork-sdk-ci-", dir="/var/tmp") as name:
        scratch = Path(name)
        scratch.chmod(0o755)
        python = tools(Path(sys.argv[2]).absolute() if sys.argv[2:] else scratch / "tools")
        check_text(python)
        (scratch / "programs").mkdir()
        for program in PROGRAMS:
            built = Path(sys.argv[1]) / program
            if built.exists():
                shutil.copy(built, scratch / "programs")
                (scratch / "programs" / program).chmod(0o755)
        installed = check_wheel(python, scratch)
        for user in (0, USER):
            test(python, installed, scratch, user)
    print("all is well")


if __name__ == "__main__":
    try:
        main()
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        sys.exit(str(error))
