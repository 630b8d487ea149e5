"""The program that comes with the package: python -m mlxcel, and the command mlxcel."""
import os
import subprocess
import sys
from typing import NoReturn


def main() -> NoReturn:
    name = "mlxcel.exe" if os.name == "nt" else "mlxcel"
    program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin", name)
    if not os.path.exists(program):
        sys.exit(f"mlxcel: {program} is missing; install the package from a wheel")
    command = [program, *sys.argv[1:]]
    if os.name == "nt":
        sys.exit(subprocess.run(command, check=False).returncode)
    os.execv(program, command)


if __name__ == "__main__":
    main()
