#!/usr/bin/env python3
"""`make check`: every check of the source tree. The last line is "N passed, N failed"."""
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
CHECKS = ["check_layers.py", "check_style.py", "check_format.py", "check_docs.py"]


def main():
    failed = 0
    for name in CHECKS:
        rc = subprocess.run([sys.executable, os.path.join(HERE, name)] + sys.argv[1:], check=False).returncode
        print(f"{'FAILED' if rc else 'ok'} {name}", flush=True)
        failed += rc != 0
    print(f"{len(CHECKS) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
