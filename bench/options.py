"""The command line of a bench: places in order, then options whose defaults are their types."""
import argparse


def read(usage, *places, **options):
    """read(__doc__, "mlxcel", "model", threads=2): args.mlxcel, args.model and args.threads. A default of None: an option that takes a text."""
    p = argparse.ArgumentParser(usage=usage)
    for name in places:
        p.add_argument(name)
    for name, default in options.items():
        p.add_argument("--" + name.replace("_", "-"), type=str if default is None else type(default), default=default)
    return p.parse_args()
