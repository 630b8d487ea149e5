#!/usr/bin/env python3
"""Checks that Windows programs import only DLLs that every Windows 10 has.

usage: check_imports.py FILE.exe ...     (objdump of binutils-mingw-w64, or MSYS2's own, reads the import tables)
"""
import os
import re
import shutil
import subprocess
import sys

SYSTEM = {
    "advapi32.dll", "bcrypt.dll", "bcryptprimitives.dll", "crypt32.dll", "dbghelp.dll", "gdi32.dll", "iphlpapi.dll", "kernel32.dll",
    "msvcrt.dll", "normaliz.dll", "ntdll.dll", "ole32.dll", "psapi.dll", "rpcrt4.dll", "secur32.dll", "shell32.dll", "user32.dll",
    "userenv.dll", "ws2_32.dll",
}
UCRT = re.compile(r"api-ms-win-crt-[a-z]+-l1-1-0\.dll|ucrtbase\.dll", re.I)  # what MSYS2's compiler links in place of msvcrt.dll


def imports(path):
    objdump = shutil.which("x86_64-w64-mingw32-objdump") or "objdump"
    text = subprocess.run([objdump, "-p", path], check=True, capture_output=True, text=True).stdout
    return re.findall(r"DLL Name: (\S+)", text)


def main():
    failed = 0
    for path in sys.argv[1:]:
        foreign = [dll for dll in imports(path) if dll.lower() not in SYSTEM and not UCRT.fullmatch(dll)
                   and not os.path.exists(os.path.join(os.path.dirname(path), dll))]  # our own lies beside it
        if foreign:
            print(f"{path}: imports {', '.join(foreign)}, which Windows does not have")
            failed = 1
    return failed


if __name__ == "__main__":
    sys.exit(main())
