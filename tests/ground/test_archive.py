"""Any record comes back from a file as it was, and a file that does not fit its record is refused in one sentence."""

import json
import math
import os
import stat
import struct
import time
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from types import GenericAlias
from typing import Annotated, Any, NamedTuple, TypeVar

import numpy as np
import pytest
from numpy.typing import NDArray

import certirl
import files
from certirl.functions.bases import Basis
from certirl.ground import archive, unpacking
from certirl.ground.archive import UNSAVED, Shape
from certirl.ground.domain import Array
from certirl_check import records
from refusals import refused


class Numbers:
    """A named type of one parameter on every Python: `type Numbers[T] = …`, as numpy 2.5 has it for NDArray."""

    __value__ = np.ndarray[Any, np.dtype[TypeVar("T")]]
    __class_getitem__ = classmethod(GenericAlias)


@archive.record
class Leaf(NamedTuple):
    name: str
    weight: float = 1.0


@archive.record
@dataclass(frozen=True, eq=False)
class Branch:
    counts: Annotated[NDArray[np.int64], Shape("A")]
    table: Annotated[Array, Shape("A k")]
    basis: Basis
    coefficients: Annotated[Array, Shape("basis.size")] | None = None

    def as_read(self, file: str) -> "Branch":
        if (self.counts < 0).any():
            raise ValueError("counts must not be negative")
        return self


@archive.record
@dataclass(frozen=True, eq=False)
class Tree:
    branches: tuple[Branch, ...]
    leaves: tuple[Leaf, Leaf]
    losses: dict[str, float]
    marks: NDArray[np.bool_]
    ends: Annotated[Array, Shape("b 2 …", infinite=True)]
    depth: int
    height: float
    evergreen: bool
    rings: Numbers[np.int64]
    note: str | None = None
    rule: Callable[[Array], Any] | None = None
    box: Any = None
    file: str | None = field(default=None, metadata=UNSAVED)

    def as_read(self, file: str) -> "Tree":
        return replace(self, file=file)


def tree():
    basis = certirl.product(certirl.Legendre(3), certirl.Fourier(3)).on(((0.0, 1.0), (-2.0, 2.0)))
    first = Branch(np.array([3, 4]), np.arange(6.0).reshape(2, 3), basis, np.ones(basis.size))
    second = Branch(np.array([5]), np.zeros((1, 0)), certirl.Legendre(2, (0, 1)))
    return Tree(
        branches=(first, second),
        leaves=(Leaf("a"), Leaf("b", math.inf)),
        losses={"grid": 0.25, "second order": math.nan},
        marks=np.array([True, False]),
        ends=np.array([[[-np.inf], [1.0]]]),
        depth=7,
        height=0.1,
        evergreen=True,
        rings=np.array([1, 2, 3]),
        rule=lambda states: states,
        box=((0.0, 1.0), (2, "x")),
    )


def test_a_record_comes_back_by_its_fields(tmp_path):
    made, path = tree(), archive.save(tree(), tmp_path / "tree")
    found = archive.load(path)
    assert path.name == "tree.npz" and archive.kind_of(path) == "Tree" and found.file == str(path)
    for name in ("leaves", "depth", "height", "evergreen", "note", "box"):
        assert getattr(found, name) == getattr(made, name)
    assert found.losses["grid"] == 0.25 and math.isnan(found.losses["second order"])
    assert found.rule is None  # functions are not kept
    np.testing.assert_array_equal(found.ends, made.ends)
    assert found.rings.dtype.kind == "i" and found.rings.tolist() == [1, 2, 3]
    assert found.marks.dtype == bool and found.marks.tolist() == [True, False]
    for own, other in zip(found.branches, made.branches, strict=True):
        assert own.basis == other.basis and own.counts.dtype.kind == "i"
        np.testing.assert_array_equal(own.table, other.table)
    np.testing.assert_array_equal(found.branches[0].coefficients, np.ones(5))
    assert found.branches[1].coefficients is None
    with pytest.raises(ValueError, match="read-only"):
        found.branches[0].table[0] = 1.0


def test_what_a_file_cannot_keep_is_refused(tmp_path):
    for wrong in ({"note": object()}, {"losses": {1: 2.0}}, {"marks": np.array(["a"])}):
        with pytest.raises(TypeError, match=r"a file (cannot keep|keeps arrays of numbers)"):
            archive.save(replace(tree(), **wrong), tmp_path / "wrong")
    assert list(tmp_path.iterdir()) == []
    other = type("Leaf", (), {"__module__": "elsewhere"})
    with pytest.raises(TypeError, match="two records are called Leaf: those of test_archive and of elsewhere"):
        archive.record(other)


CHANGED = {
    "text that hides a line": (
        lambda r, a: r.update(note="\x1b[8m"),
        r"note must be a text of print.*'\\x1b\[8m'",
    ),
    "text that turns around": (
        lambda r, a: r["leaves"][0].update(name="\u202e"),
        "0.name must be a text of print",
    ),
    "a text among others": (lambda r, a: r.update(box=["a", ["b\n"]]), "box.1.0 must be a text of printable"),
    "a name with a line break": (lambda r, a: r["losses"].update({"a\nb": 1.0}), "a name in losses must be a text of"),
    "an unknown field": (lambda r, a: r.update(colour="green"), "Tree has no field colour"),
    "a missing field": (lambda r, a: r.pop("depth"), "Tree lacks the field depth"),
    "a field of a part": (lambda r, a: r["leaves"][0].pop("name"), "leaves.0 lacks the field name"),
    "a number that is text": (lambda r, a: r.update(height="1"), "height must be a number, got '1'"),
    "half of a count": (lambda r, a: r.update(depth=2.5), "depth must be a whole number, got 2.5"),
    "a flag that is a number": (lambda r, a: r.update(evergreen=1), "evergreen must be true or false, got 1"),
    "nothing in place of a record": (lambda r, a: r["branches"][0].update(basis=None), "basis must be Basis, got None"),
    "another record": (lambda r, a: r["branches"][0].update(basis=r["leaves"][0]), "basis must be Basis, got 'Leaf'"),
    "an unknown record": (lambda r, a: r.update(type="Shrub"), "the file must be .* got 'Shrub'"),
    "three leaves": (lambda r, a: r["leaves"].append(r["leaves"][0]), "leaves must have 2 entries, got 3"),
    "a list of losses": (lambda r, a: r.update(losses=[1.0]), "losses must be values by name, got"),
    "no array": (lambda r, a: a.pop("marks"), "marks holds no array"),
    "an array too many": (lambda r, a: a.update(more=np.ones(2)), "there is no field for the array more"),
    "an array for a number": (lambda r, a: r.update(depth={"array": [2]}), "depth is not an array"),
    "numbers for truth values": (lambda r, a: a.update(marks=np.ones(2)), "marks must be an array of truth values"),
    "floats for rings": (lambda r, a: a.update(rings=np.ones(3)), "rings must be an array of whole numbers"),
    "floats for counts": (
        lambda r, a: a.update({"branches.0.counts": np.ones(2)}),
        "branches.0.counts must be an array of whole numbers",
    ),
    "not a number": (lambda r, a: a.update(ends=np.full((1, 2, 1), np.nan)), "ends must hold numbers, got NaN"),
    "infinite": (
        lambda r, a: a.update({"branches.0.table": np.full((2, 3), np.inf)}),
        "branches.0.table must hold finite numbers",
    ),
    "shapes that differ from the header": (
        lambda r, a: a.update(marks=np.ones(3, bool)),
        r"shape \[2\], got bool \[3\]",
    ),
    "a letter with two values": (
        lambda r, a: (
            a.update({"branches.0.counts": np.array([1])}),
            r["branches"][0].update(counts={"array": [1]}),
        ),
        "branches.0.table must have the shape .* with A = 1",
    ),
    "another size than the basis": (
        lambda r, a: r["branches"][0]["basis"].update(size=4),
        "coefficients must have the shape .* with basis.size = 4",
    ),
    "an axis too few": (
        lambda r, a: (a.update(ends=np.ones(2)), r.update(ends={"array": [2]})),
        "ends must have the shape",
    ),
    "a product that there is not": (
        lambda r, a: r["branches"][0]["basis"].update(index="round"),
        "index must be one of 'total', 'full', 'hyperbolic', got 'round'",
    ),
    "what the record itself refuses": (
        lambda r, a: a.update({"branches.0.counts": np.array([-1, 4])}),
        "counts must not be negative",
    ),
}


@pytest.mark.parametrize("how", CHANGED)
def test_changed_files_are_one_sentence(how, tmp_path):
    record, arrays = files.parts(archive.save(tree(), tmp_path / "tree"))
    change, sentence = CHANGED[how]
    change(record, arrays)
    with pytest.raises(ValueError, match=f"changed.npz is damaged or was changed: .*{sentence}") as caught:
        archive.load(files.write(tmp_path / "changed.npz", record, arrays))
    assert "\n" not in str(caught.value)


def test_files_of_other_versions_and_formats_are_refused(tmp_path):
    reads = f"this certirl reads {archive.OLDEST} to {archive.VERSION}"
    for header, sentence in (
        ({"format": "certirl", "version": 1}, f"has format version 1 and {reads}: make it again with this certirl"),
        ({"format": "certirl", "version": 99}, f"has format version 99 and {reads}: update certirl to read it"),
        ({"format": "certirl", "version": True}, f"has format version True and {reads}: make it again"),
        ({"format": "other", "version": 2}, "its header names no certirl format"),
        ({"format": "certirl", "version": 2}, "it holds no record"),
    ):
        np.savez(tmp_path / "other.npz", header=np.array(json.dumps(header)))
        refused(sentence, archive.load, tmp_path / "other.npz")


def test_what_is_no_file_of_certirl_or_only_a_part_of_one_is_one_sentence(tmp_path):
    whole = saved_tree(tmp_path).read_bytes()
    for cut in (0, 10, len(whole) // 2, len(whole) - 5):
        (tmp_path / "cut.npz").write_bytes(whole[:cut])
        refused("damaged or cut short", certirl.load, tmp_path / "cut.npz")
    (tmp_path / "text.npz").write_text("hello")
    np.savez(tmp_path / "foreign.npz", a=np.ones(3))
    np.savez(tmp_path / "pickle.npz", header=np.array({"format": "certirl"}, dtype=object))  # never opened
    for name in ("text", "foreign", "pickle"):
        refused("not a certirl file", certirl.load, tmp_path / f"{name}.npz")
    with pytest.raises(FileNotFoundError, match="no file"):
        certirl.load(tmp_path / "nothing.npz")


def saved_tree(folder):
    return archive.save(tree(), folder / "tree")


def mode_of(path):
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.skipif(os.name != "posix", reason="permissions of POSIX")
@pytest.mark.parametrize(("umask", "mode"), [(0o022, 0o644), (0o077, 0o600), (0o002, 0o664)])
def test_new_files_have_the_permissions_that_the_umask_gives(umask, mode, tmp_path):
    before = os.umask(umask)
    try:
        assert mode_of(saved_tree(tmp_path)) == mode
    finally:
        os.umask(before)


@pytest.mark.skipif(os.name != "posix", reason="permissions of POSIX")
@pytest.mark.parametrize("mode", [0o600, 0o640, 0o664])
def test_a_file_that_is_replaced_keeps_its_permissions_and_is_private_meanwhile(mode, tmp_path):
    path = saved_tree(tmp_path)
    path.chmod(mode)
    with archive.replacing(path) as temporary:
        assert mode_of(temporary) == 0o600
        temporary.write_bytes(path.read_bytes())
    assert mode_of(path) == mode and archive.load(path).depth == 7
    link = tmp_path / "link.npz"
    link.symlink_to(path)
    archive.save(tree(), link)
    assert link.is_symlink() and mode_of(path) == mode


def test_what_takes_the_place_of_a_file_is_on_the_disk(tmp_path, monkeypatch):
    done = []
    for name in ("fsync", "replace"):
        before = getattr(os, name)
        monkeypatch.setattr(os, name, lambda *given, name=name, before=before: (done.append(name), before(*given))[1])
    saved_tree(tmp_path)
    assert done[:2] == ["fsync", "replace"]

    def failing(descriptor):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "fsync", failing)
    with pytest.raises(OSError, match=r"cannot write .*tree.npz: input/output error"):
        saved_tree(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["tree.npz"] and archive.load(tmp_path / "tree.npz").depth == 7


def test_what_killed_writers_left_a_day_ago_is_removed_and_nothing_else(tmp_path):
    old, young, folder = (tmp_path / f".certirl-{name}" for name in ("abc.npz", "def.npz", "folder"))
    for path in (old, young):
        path.write_bytes(b"half")
    folder.mkdir()
    for path in (old, folder):
        os.utime(path, (time.time() - 100_000,) * 2)
    saved_tree(tmp_path)
    assert not old.exists() and young.exists() and folder.exists()
    with pytest.raises(KeyboardInterrupt), archive.replacing(tmp_path / "tree.npz"):
        raise KeyboardInterrupt  # leaves nothing
    assert len(list(tmp_path.glob(".certirl-*"))) == 2 and archive.load(tmp_path / "tree.npz").depth == 7


def test_standard_output_is_no_place_for_a_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    refused(r"cannot write to standard output: name a file, such as result\.npz", archive.save, tree(), "-")
    assert list(tmp_path.iterdir()) == []


def readers(path):
    """What reads files of certirl: the library, and the checker that shares nothing with it."""
    return [lambda: archive.load(path), lambda: certirl.check(path)]


def test_headers_nested_without_end_are_one_sentence(tmp_path):
    nested = "[" * 50_000 + "]" * 50_000
    for text in (nested, f'{{"format": "certirl", "version": {archive.VERSION}, "record": {nested}}}'):
        np.savez(tmp_path / "nested.npz", header=np.array(text))
        (tmp_path / "nested.json").write_text(text if text[0] == "{" else f'{{"a": {text}}}', encoding="utf-8")
        for read in (*readers(tmp_path / "nested.npz"), *readers(tmp_path / "nested.json")[:1]):
            refused(r"nested.* is not a certirl file, or it is damaged or cut short", read)


def claiming(path, shape, *, content=b"12345678"):
    """An npz file with an array that says to be of this shape."""
    with zipfile.ZipFile(path, "w") as stored:
        text = f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
        stored.writestr("header.npy", b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text.encode() + content)
    return path


def test_sizes_that_a_file_only_claims_take_no_memory(tmp_path):
    for shape in ("(1000000000000,)", "(2,)", "(0,)", "(-1,)"):
        path = claiming(tmp_path / "claims.npz", shape)
        for read in readers(path):
            refused(r"claims\.npz is (not a certirl file|damaged)", read)


def test_files_that_unpack_to_too_much_are_refused_with_the_limit(tmp_path, monkeypatch):
    path = tmp_path / "bomb.npz"
    np.savez_compressed(path, header=np.zeros(2_000_000))
    monkeypatch.setattr(unpacking, "FREELY", 10**7)
    monkeypatch.setattr(records, "UNPACKED", 10**7)
    for read in readers(path):
        refused(r"bomb.npz.* unpacks to more than 10 MB and more than 100 times its own", read)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes")
def test_pipes_and_devices_are_refused_at_once(tmp_path):
    os.mkfifo(tmp_path / "pipe.npz")
    for path in (tmp_path / "pipe.npz", "/dev/zero", tmp_path):
        for read in readers(path):
            with pytest.raises(FileNotFoundError, match=r"is (a|no|not a) (folder|pipe|device|file)"):
                read()
    assert archive.kind_of(tmp_path / "pipe.npz") is None
