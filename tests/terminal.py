"""What programs write to a terminal."""
import os


def rows(seen):
    """The rows that stand on a terminal after these bytes: carriage returns and newlines, no escape sequences."""
    out = []
    for line in seen.decode(errors="replace").split("\n"):
        row = ""
        for part in line.split("\r"):
            row = part + row[len(part):]
        out.append(row.rstrip())
    return out


def read_all(terminal):
    """All that comes until the last program has left the terminal, which Linux tells by an error."""
    seen = b""
    try:
        while piece := os.read(terminal, 65536):
            seen += piece
    except OSError:
        pass
    os.close(terminal)
    return seen
