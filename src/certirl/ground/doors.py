"""Checks of arguments, user functions and their answers; each is checked here, once."""

from __future__ import annotations

import operator
import os
import sysconfig
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from decimal import Decimal
from difflib import get_close_matches
from functools import partial, wraps
from inspect import signature
from numbers import Real
from pathlib import Path
from threading import RLock
from traceback import walk_tb
from types import TracebackType
from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

LEAST_DELTA = 1e-100  # its parts, for thousands of events, must be numbers, too

_Function = TypeVar("_Function", bound=Callable[..., Any])

# One lock for all user code: a simulator may ask an expert, and an expert a simulator.
_ONE_AT_A_TIME = RLock()

# The options of the command that is running, if any: from the name of a keyword to the option.
_OPTIONS: ContextVar[Mapping[str, str] | None] = ContextVar("certirl_options", default=None)
# How the command that is running writes a call of Python as a command.
_AS_COMMAND: ContextVar[Callable[[str], str]] = ContextVar("certirl_as_command", default=str)


def setting(name: str, value: str = "") -> str:
    """A setting as the user writes it: ``outside='clip'``, or ``--outside clip`` in a command.

    Errors name settings by this function, so that they are right in Python and on the command line.

    ``value`` is as Python writes it; without it the result is the name alone.
    """
    option = (_OPTIONS.get() or {}).get(name)
    if option is None:
        return f"{name}={value}" if value else name
    word, _, form = option.partition(" ")
    return word if value in ("", "True") else f"{word} {form or value.strip(chr(39))}"


def by_door(python: str, command: str) -> str:
    """The first text in Python, the second on the command line."""
    return python if _OPTIONS.get() is None else command


def called(text: str) -> str:
    """A call, "certirl.solve(…, columns=9)", as the user writes it: in a command as a command."""
    return _AS_COMMAND.get()(text) if text else ""


@contextmanager
def options(table: Mapping[str, str], as_command: Callable[[str], str] = str) -> Iterator[None]:
    """Within the ``with`` block settings are written as options of a command, and calls by ``as_command``.

    The table has the option of each keyword, ``{"n_actions": "--actions"}``; with the form of its values if these are
    not written as in Python, ``{"domain": "--domain LOW HIGH"}``.
    """
    token, before = _OPTIONS.set(table), _AS_COMMAND.set(as_command)
    try:
        yield
    finally:
        _AS_COMMAND.reset(before)
        _OPTIONS.reset(token)


def with_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function for other threads and processes, in which settings are written as here."""
    table = _OPTIONS.get()
    return function if table is None else partial(_with_options, dict(table), function)


def _with_options(table: Mapping[str, str], function: Callable[..., Any], *arguments: Any) -> Any:
    with options(table):
        return function(*arguments)


def as_number(
    value: Any,
    name: str,
    *,
    least: float = -np.inf,
    most: float = np.inf,
    strict: bool = False,
    meaning: str = "",
) -> float:
    """A finite real number between ``least`` and ``most`` as a float; no text, truth value or array."""
    number = real(value)
    inside = number is not None and (least < number < most if strict else least <= number <= most)
    if number is None or not inside or not np.isfinite(number):
        raise ValueError(
            f"{setting(name)} must be {meaning or 'a number'}{_range(least, most, strict)}, got {shown(value)}"
        )
    return number


def as_probability(value: Any, name: str) -> float:
    """A number strictly between 0 and 1."""
    return as_number(value, name, least=0, most=1, strict=True)


def as_delta(value: Any) -> float:
    """δ, the probability of a false statement: above 0 and at most ½."""
    return as_number(value, "delta", least=LEAST_DELTA, most=0.5, meaning="a probability of error")


def as_count(value: Any, name: str, *, least: int = 1, most: int | None = None, meaning: str = "") -> int:
    """A whole number between ``least`` and ``most`` as an int; 2.0, True and "2" are refused."""
    try:
        number = None if isinstance(value, bool | np.bool_) or np.ndim(value) else operator.index(value)
    except (TypeError, ValueError):
        number = None
    if number is None or number < least or (most is not None and number > most):
        too_many = number is not None and most is not None and number > most
        ends = f", at most {most:,}" if too_many else f", at least {least:,}"
        raise ValueError(f"{setting(name)} must be {meaning or 'a whole number'}{ends}, got {shown(value)}")
    return number


def as_flag(value: Any, name: str) -> bool:
    """True or False; other values, even 0 and 1, are refused."""
    if not isinstance(value, bool | np.bool_):
        raise ValueError(f"{setting(name)} must be True or False, got {shown(value)}")
    return bool(value)


def as_array(
    values: Any, name: str, *, truth: bool = False, first: int = 0, instead: str | None = None
) -> NDArray[Any]:
    """Real numbers as an array of integers or floats, copied only if necessary.

    Masked and missing values, complex numbers, times, texts, truth values and rows of different length are refused.

    For errors ``name`` is that of the argument, ``first`` the number of its first row, ``instead`` what to write
    instead of values of another type. True and False are allowed if ``truth``.
    """
    if type(values) is np.ndarray and values.dtype.kind in "iuf":
        return values
    for number, part in enumerate(values if isinstance(values, list | tuple) else [values]):
        if isinstance(part, np.ma.MaskedArray) and np.ma.getmaskarray(part).any():
            place = np.argwhere(np.ma.getmaskarray(part))[0]
            row = first + (number if part is not values else int(place[0]) if place.size else 0)
            raise ValueError(
                f"{name} must be real numbers, got masked values, the first in row {row}; leave such rows out"
            )
    try:
        array = np.asarray(values)
    except (TypeError, ValueError, RuntimeError):
        raise ValueError(f"{name} must be an array of real numbers, {_unequal(values, first)}") from None
    kind = array.dtype.kind
    if kind == "O":
        return _from_objects(array, name, first)
    if kind not in ("biuf" if truth else "iuf"):
        got = shown(values) if array.ndim == 0 else f"an array of {array.dtype}"
        raise ValueError(f"{name} must be real numbers, got {got}; {instead or _INSTEAD.get(kind, 'write numbers')}")
    return array


def as_text(value: Any, name: str, *, most: int = 100) -> str:
    """A text that can be printed as it is, without the spaces around it.

    Characters that move the cursor, erase, break the line or turn the direction of writing are refused: printed, they
    could hide or forge a result.
    """
    text = value.strip() if isinstance(value, str) else ""
    if not text or not text.isprintable() or len(text) > most:
        raise ValueError(f"{setting(name)} must be a printable text of 1 to {most:,} characters, got {shown(value)}")
    return value if text == value else text


def printable(text: str) -> str:
    """A text in one line, with escapes for what cannot be printed."""
    line = " ".join(text.split())
    return "".join(sign if sign.isprintable() else repr(sign)[1:-1] for sign in line)


def as_listed(values: Any, name: str) -> tuple[Any, ...]:
    """Values in an order that is the same in every run: of a list, a tuple or an array.

    Sets have another order in every process, and generators can be read once.
    """
    if isinstance(values, str | bytes | Mapping) or not (hasattr(values, "__len__") and hasattr(values, "__getitem__")):
        raise TypeError(
            f"{setting(name)} must be a list or a tuple, in an order that means something, got {shown(values)}"
        )
    return tuple(values)


def as_labels(values: Any, name: str) -> NDArray[Any]:
    """Labels of rows, numbers or names ``[n]``, none of them missing."""
    labels = np.asarray(values)
    missing = labels.dtype.kind == "f" and not np.isfinite(labels).all()
    if labels.dtype.kind not in "iufUS" or labels.ndim != 1 or missing or np.ma.is_masked(values):
        raise ValueError(f"{name} must be numbers or names, one for each row and none missing, got {shown(values)}")
    return labels


class UserCodeError(RuntimeError):
    """A function or a file of the user failed: the sentence says which, where and how.

    Its ``__cause__`` is the exception that the user's code raised, unless it was raised in another process.

    Example:
        >>> def expert(states):
        ...     return {}["left"]
        >>> try:
        ...     certirl.solve(certirl.problems.thermostat(), discount=0.9, expert=expert, samples=200, rng=0)
        ... except certirl.UserCodeError as problem:
        ...     print(type(problem.__cause__).__name__)
        KeyError
    """


def lend(value: Any) -> Any:
    """A copy of states for user code, which may change it, as ``obs -= mean`` does; other values as they are."""
    if isinstance(value, np.ndarray):
        return np.array(value)
    return value.clone() if type(value).__module__.partition(".")[0] == "torch" and hasattr(value, "clone") else value


def call(function: Any, *arguments: Any, what: str, read: Callable[[Any], Any] = lambda answer: answer) -> Any:
    """The answer of user code; all functions of the user are called here.

    The function receives copies of arrays. Its answer is read, and thereby copied, before another thread calls it.

    ``what`` the function is, say "the expert", is for errors; ``read`` checks the answer and makes an array of it.
    """
    with alone(function):
        with users(what, function, arguments):
            answer = function(*map(lend, arguments))
        return read(answer)


class users:
    """Name an exception within this ``with`` block as that of user code, by its place: function, file and line.

    ``SystemExit`` is one of them, or a file that ends in ``sys.exit()`` would end a command as if all was well. An
    error that the library raised in a function of its own stays as it is.
    """

    def __init__(self, what: str, function: Any = None, arguments: tuple[Any, ...] = ()) -> None:
        self.what, self.function, self.arguments = what, function, arguments

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, problem: BaseException | None, trace: TracebackType | None) -> None:
        if not isinstance(problem, Exception | SystemExit) or isinstance(problem, UserCodeError):
            return
        frames = list(walk_tb(trace))
        places = [place for place in frames if not is_installed(place[0].f_code.co_filename)]
        is_raised_here = len(frames) > 1 and frames[-1][0].f_code.co_filename.startswith(_INSTALLED[0])
        if not places and (is_raised_here or _is_ours(self.function)):
            return
        where = ""
        if places:
            frame, line = places[-1]
            name = frame.f_code.co_qualname.replace("<locals>.", "")
            where = f" in {name} ({file_name(_near(frame.f_code.co_filename))}, line {line})"
        raise UserCodeError(f"{self.what} failed{where}: {_failure(problem, self.arguments)}") from problem


def is_installed(file: str) -> bool:
    """Whether a file of code belongs to this library, another one or Python itself, and not to the user."""
    return file.startswith(_INSTALLED) or "site-packages" in file or "dist-packages" in file


def file_name(path: Any) -> str:
    """The name of a file for a print or an error."""
    name = os.fspath(path) if isinstance(path, os.PathLike) else str(path)
    return name if name.isprintable() else ascii(name)


def _near(file: str) -> str:
    """A file as seen from the working folder, where it lies in it."""
    folder = os.getcwd() + os.sep
    return file.removeprefix(folder)


def _is_ours(function: Any) -> bool:
    """Whether a function is one of this library."""
    while isinstance(function, partial):
        function = function.func
    return str(getattr(function, "__module__", "")).partition(".")[0] == "certirl"


def _failure(problem: BaseException, arguments: tuple[Any, ...]) -> str:
    """What happened in user code, as the end of a sentence."""
    try:
        text = printable(str(problem))
    except Exception:
        text = ""
    if isinstance(problem, SystemExit):
        return f"it calls sys.exit({text}): write that below if __name__ == '__main__', which is not run here"
    if isinstance(problem, TypeError | ValueError) and any(words in text for words in _FOR_ONE_STATE):
        dimension = next((np.shape(states)[1] for states in arguments[:1] if np.ndim(states) == 2), 1)
        return (
            f"it is called with all states at once, an array [n, {dimension}]: write "
            "np.where(states[:, 0] < 20, 1, 0) instead of if, and functions of NumPy instead of math"
        )
    text = text if len(text) <= _LONGEST else f"{text[:_LONGEST]} …"
    return f"{type(problem).__name__}: {text}" if text else type(problem).__name__


def some_rows(count: int) -> NDArray[np.intp]:
    """Rows of a grid for a second call of user code, with another mean and other extremes."""
    return np.asarray(count * (0.05 + 0.85 * np.linspace(0.0, 1.0, max(count // 9, 1)) ** 2), dtype=np.intp)


def closest(name: Any, names: Iterable[str]) -> str:
    """The name that comes closest to a misspelt one, as part of a sentence; empty if none does."""
    by_small = {other.lower(): other for other in names}
    close = get_close_matches(str(name).lower(), by_small, n=1)
    return f" (perhaps {by_small[close[0]]!r})" if close else ""


def alone(function: Any) -> AbstractContextManager[Any]:
    """Call user code within this ``with`` block, one thread at a time.

    A function with an attribute ``thread_safe = True``, or a method of an object with it, is called by several threads
    at once. Others may return a buffer that the next call overwrites.
    """
    safe = [getattr(owner, "thread_safe", False) is True for owner in (function, getattr(function, "__self__", None))]
    return nullcontext() if any(safe) else _ONE_AT_A_TIME


def as_reals(values: Any, what: str, *, truth: bool = False) -> NDArray[Any]:
    """The answer of user code as a new array of real numbers, or truth values if ``truth``."""
    return np.array(as_array(values, what, truth=truth))


def as_flags(values: Any, count: int, what: str) -> NDArray[np.bool_]:
    """Truth values ``[count]`` as a new array, from True and False, or 1 and 0."""
    flags = as_array(values, what, truth=True, instead="write True or False")
    column = flags[:, 0] if flags.shape == (count, 1) else flags
    if column.shape != (count,):
        raise ValueError(
            f"{what} must be True or False for each of the {count} states, "
            f"got {flags.dtype} of shape {list(flags.shape)}"
        )
    other = (column != 0) & (column != 1)
    if other.any():
        row = int(other.argmax())
        raise ValueError(f"{what} must be True or False for each of the {count} states, got {column[row]} in row {row}")
    return column.astype(bool)


def typed(function: _Function) -> _Function:
    """The same function, or record, which refuses with a sentence what its signature does not declare.

    Checked are parameters declared as int, float, bool, str, tuples of floats, Generators, or classes of this library,
    each perhaps with None; of others, such as Sequence or Any, nothing is known. Ranges are for the function to check.

    Example:
        >>> @typed
        ... def wait(seconds: float) -> float: ...
        >>> wait("2")
        ValueError: seconds must be a number, finite, got '2'
    """
    if isinstance(function, type):  # a record: its fields
        function.__init__ = typed(function.__init__)  # type: ignore[misc]
        return function
    parameters = signature(function)
    checks = {name: str(each.annotation).split(" | ") for name, each in parameters.parameters.items()}

    @wraps(function)
    def checked(*arguments: Any, **settings: Any) -> Any:
        for name, value in parameters.bind(*arguments, **settings).arguments.items():
            _check_declared(value, name, checks[name], function.__globals__)
        return function(*arguments, **settings)

    return cast(_Function, checked)


_SCALARS: dict[str, Callable[[Any, str], Any]] = {
    "int": partial(as_count, least=0),
    "float": as_number,
    "bool": as_flag,
    "str": as_text,
}


def _check_declared(value: Any, name: str, kinds: list[str], known: Mapping[str, Any]) -> None:
    if value is None and "None" in kinds:
        return
    first = kinds[0]
    if first in _SCALARS:
        _SCALARS[first](value, name)
    elif first == "np.random.Generator":
        if not callable(getattr(value, "random", None)):
            raise TypeError(f"{setting(name)} must be a Generator, np.random.default_rng(0), got {shown(value)}")
    elif first in ("tuple[float, ...]", "tuple[tuple[float, ...], ...]"):
        numbers, depth = as_array(value, setting(name)), first.count("tuple")
        if numbers.ndim != depth or not numbers.size or not np.isfinite(numbers).all():
            rows = "" if depth == 1 else ", equally many in every row"
            raise ValueError(f"{setting(name)} must be one or more finite numbers{rows}, got {shown(value)}")
    else:
        classes = [kind for kind in kinds if kind != "None"]
        if all(kind.isidentifier() and _is_record(known.get(kind)) for kind in classes):
            own = {each.__name__ for each in type(value).__mro__ if each.__module__.partition(".")[0] == "certirl"}
            if not own & {*classes}:
                raise TypeError(f"{setting(name)} must be of type {' or '.join(classes)}, got {shown(value)}")


def _is_record(kind: Any) -> bool:
    """Whether a declaration is a class of this library; one that only type checkers import is None, and is one."""
    is_class = isinstance(kind, type) and not issubclass(kind, tuple)  # boxes are written as tuples
    return kind is None or (is_class and _is_ours(kind) and not getattr(kind, "_is_protocol", False))


def takes(function: Callable[..., Any], *arguments: Any) -> bool:
    """Whether a function can be called with these arguments, as far as its signature says."""
    try:
        signature(function).bind(*arguments)
    except ValueError:  # compiled functions have none
        return True
    except TypeError:
        return False
    return True


def shown(value: Any) -> str:
    """A value in at most about 60 characters, for errors."""
    try:
        text = printable(repr(value))
    except Exception:  # of the user's class
        text = f"a {type(value).__name__}"
    return text if len(text) <= 60 else f"{text[:56]} … ({type(value).__name__})"


_LONGEST = 300  # characters of the text of an exception

# Where code lies that is not the user's.
_INSTALLED = (
    str(Path(__file__).parents[1]) + os.sep,
    *(sysconfig.get_path(path) + os.sep for path in ("stdlib", "platstdlib")),
    "<frozen ",
    "<__array_function__",
)

# What NumPy says if an array is used as one number.
_FOR_ONE_STATE = (
    "truth value of an array",
    "only length-1 arrays can be converted",
    "only 0-dimensional arrays can be",
)

# What to write instead of an array of another type.
_INSTEAD = {
    "b": "write 0.0 and 1.0 where that is meant",
    "c": "write values.real where the imaginary part is zero",
    "M": "write seconds since the first, say (t - t[0]) / np.timedelta64(1, 's')",
    "m": "write seconds, say dt / np.timedelta64(1, 's')",
    "U": "convert texts with float",
    "S": "convert texts with float",
    "T": "convert texts with float",
}


_NAMED_COLUMNS = "convert texts with float; certirl.logs.read takes tables with names of columns and actions"


def _unequal(values: Any, first: int) -> str:
    """The reason why values form no array."""
    if isinstance(values, list | tuple):
        lengths = [len(value) if hasattr(value, "__len__") else None for value in values]
        for row, length in enumerate(lengths):
            if length != lengths[0]:
                sizes = ["one number" if n is None else f"{n} numbers" for n in (lengths[0], length)]
                return f"equally many in every row: row {first} has {sizes[0]}, row {first + row} has {sizes[1]}"
    return f"got {type(values).__name__}"


def _from_objects(array: NDArray[Any], name: str, first: int) -> NDArray[np.float64]:
    """Python numbers, fractions and decimals as floats."""
    for place in np.ndindex(array.shape):
        value = array[place]
        if isinstance(value, bool) or not isinstance(value, Real | Decimal):
            instead = _NAMED_COLUMNS if isinstance(value, str) else "leave rows with missing values out"
            where = f" in row {first + place[0]}; {instead}" if place else ""
            raise ValueError(f"{name} must be real numbers, got {shown(value)}{where}")
    try:
        return array.astype(np.float64)
    except OverflowError:
        raise ValueError(f"{name} must be finite in double precision, got a number above 1.8e308") from None


def is_number(text: str) -> bool:
    """Whether a text is a number."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def real(value: Any) -> float | None:
    """A real number as a float; None for anything else, such as True, "2" or an array."""
    if isinstance(value, np.ndarray) and value.ndim == 0 and value.dtype.kind in "iuf":
        return float(value)
    if isinstance(value, bool | np.bool_) or not isinstance(value, Real):
        return None
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return None


def _range(least: float, most: float, strict: bool) -> str:
    if np.isfinite(least) and np.isfinite(most):
        return f"{' strictly' if strict else ''} between {least:g} and {most:g}"
    if np.isfinite(least):
        return f" {'above' if strict else 'not below'} {least:g}"
    return f" {'below' if strict else 'not above'} {most:g}" if np.isfinite(most) else ", finite"
