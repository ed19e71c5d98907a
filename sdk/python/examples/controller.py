"""The machine by name, as programs for a virtual machine know it."""

import tempfile

from cowork.host.controller import CoworkController, SandboxConfig

with tempfile.TemporaryDirectory() as folder:
    config = SandboxConfig(vm_name="sandbox", working_dir="/workspace", folder=folder, keep=False)
    with CoworkController(config) as controller:
        print(controller.get_vm_info())
        result = controller.execute_in_vm("pwd; echo hello > hello.txt; ls")
        print(result.output, result.exit_code, result.duration)
        print(controller.ask_claude("which files are in this folder?").output)
