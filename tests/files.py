"""Files of certirl, taken apart and written again with changes."""

import json

import numpy as np

from certirl.ground import archive


def parts(path):
    """The record in the header, and the arrays by their places."""
    header, arrays = archive.read(path)
    return header["record"], arrays


def write(path, record, arrays):
    """A file with this record and these arrays, whatever they are."""
    header = {"format": archive.FORMAT, "version": archive.VERSION, "record": record}
    np.savez(path, header=np.array(json.dumps(header)), **arrays)
    return path


def lines_of(record):
    """What is printed of a record, but for what is assumed: a file that was checked says what the check trusts."""
    return [line for line in str(record).splitlines() if not line.strip().startswith("assumed")]


def place(arrays, name):
    """The place of the one array of a certificate with this name."""
    (found,) = [place for place in arrays if place.split(".")[-1] == name and "components" not in place]
    return found


def owner(record, name):
    """The part of a certificate that has this field: itself, its surrogate or its evidence."""
    claim = record.get("certificate", record)
    return next((part for part in (claim, claim["surrogate"], claim["evidence"]) if name in part), claim)
