from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from cowork import Client, InvalidRequest, Limits, NotFound
from cowork.host.controller import CoworkController, SandboxConfig

EXAMPLES = sorted((Path(__file__).parent.parent / "examples").glob("*.py"))


def test_a_machine_stays_and_is_found_again(folder: Path, client: Client) -> None:
    config = SandboxConfig(
        vm_name="sdk-machine", folder=folder / "work", limits=Limits(memory="512M"), env={"A": "b"}
    )
    with CoworkController(config) as controller:
        result = controller.execute_in_vm("echo hello > file; echo $A; echo err >&2; exit 3")
        assert (result.output, result.stdout, result.stderr) == ("b\nerr\n", "b\n", "err\n")
        assert result.exit_code == 3
        assert result.duration >= 0
        info = controller.get_vm_info()
        assert (info.name, info.running, info.working_dir) == ("sdk-machine", True, "/workspace")
        assert info.folder == str(folder / "work")
        assert info.limits["memory"] == "512M"
        assert info.pid
        controller.stop()
    assert (folder / "work" / "file").read_text() == "hello\n"
    with CoworkController(config) as controller:
        assert controller.execute_in_vm(["cat", "file"]).output == "hello\n"
        assert controller.execute_in_vm("sleep 60", timeout=0.2).exit_code == 124
        controller.destroy()
    with pytest.raises(NotFound):
        client.connect("sdk-machine")
    assert (folder / "work" / "file").exists()


def test_a_machine_that_is_not_kept_ends_with_its_controller(folder: Path, client: Client) -> None:
    config = SandboxConfig(vm_name="sdk-brief", working_dir="/desk", folder=folder, keep=False)
    with CoworkController(config, client=client) as controller:
        assert controller.execute_in_vm("pwd").output == "/sessions/sdk-brief/mnt/desk\n"
    with pytest.raises(NotFound):
        client.connect("sdk-brief")
    with pytest.raises(InvalidRequest):
        CoworkController(SandboxConfig(working_dir="/a/b"))


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_examples_run(example: Path, folder: Path) -> None:
    environment = {**os.environ, "HOME": str(folder), "PYTHONWARNINGS": "error"}
    python = os.environ.get("COWORK_SDK_PYTHON")
    if python:
        del environment["PYTHONPATH"]
    done = subprocess.run(
        [python or sys.executable, "-X", "dev", str(example)],
        env=environment, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout
