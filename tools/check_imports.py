#!/usr/bin/env python3
"""Checks that Windows programs import only DLLs that every Windows 10 has.

usage: check_imports.py FILE.exe ...     (objdump of binutils-mingw-w64 reads the import tables)
"""
import re
import subprocess
import sys

SYSTEM = {
    "advapi32.dll", "bcrypt.dll", "bcryptprimitives.dll", "crypt32.dll", "dbghelp.dll", "gdi32.dll", "iphlpapi.dll", "kernel32.dll",
    "msvcrt.dll", "normaliz.dll", "ntdll.dll", "ole32.dll", "psapi.dll", "rpcrt4.dll", "secur32.dll", "shell32.dll", "user32.dll",
    "userenv.dll", "ws2_32.dll",
}


def imports(path):
    text = subprocess.run(["x86_64-w64-mingw32-objdump", "-p", path], check=True, capture_output=True, text=True).stdout
    return re.findall(r"DLL Name: (\S+)", text)


def main():
    failed = 0
    for path in sys.argv[1:]:
        foreign = [dll for dll in imports(path) if dll.lower() not in SYSTEM]
        if foreign:
            print(f"{path}: imports {', '.join(foreign)}, which Windows does not have")
            failed = 1
    return failed


if __name__ == "__main__":
    sys.exit(main())
