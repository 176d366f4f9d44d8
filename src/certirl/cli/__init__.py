"""The command line: one verb after another in `verbs`, each with its examples, options and exit codes."""

from __future__ import annotations

from certirl.cli import interrupts  # first: from here on Ctrl-C is one line

# isort: split
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from functools import cache

from certirl import __version__
from certirl.cli.again import Again
from certirl.cli.output import complain, lasting_output, lines_of, sentence
from certirl.cli.parsing import BAD_INPUT, DONE, INTERRUPTED, Parser, Verb, build, option_names, parse
from certirl.ground import doors
from certirl.ground.work import clocked, shown_progress


@cache
def verbs() -> tuple[Verb, ...]:
    """All verbs, in the order of the help; their modules import most of the library."""
    from certirl.cli import files, paper, solving

    return (*solving.VERBS, *files.VERBS, *paper.VERBS)


def parser() -> Parser:
    """The parser of all commands, for programs that write completion scripts."""
    return build(verbs(), __version__)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; mistakes are one sentence on standard error and exit code 2."""
    words = sys.argv[1:] if arguments is None else list(arguments)
    as_json = "--json" in words  # also where the other words cannot be read
    parser = build(() if words == ["--version"] else verbs(), __version__)
    try:
        interrupts.begin_work()
        with lasting_output():
            return _run(parser, words)
    except KeyboardInterrupt:
        return _interrupted(as_json)
    except (ValueError, TypeError, OSError, ImportError, MemoryError, SystemError, doors.UserCodeError) as problem:
        if interrupts.happened():
            return _interrupted(as_json)
        if isinstance(problem, SystemError):
            raise
        complain(sentence(problem), as_json=as_json)
        return BAD_INPUT


def _run(parser: Parser, words: Sequence[str]) -> int:
    if not words:
        parser.print_help()
        return DONE
    options = parse(parser, words)
    options.words = words
    written = Again(parser, options, words)
    with (
        doors.options(option_names(options), written),
        shown_progress(False if options.quiet else None),
        lines_of(options),
    ):
        with clocked(options.verb.name) if options.verb.clocked else nullcontext():
            answer = options.verb.run(options)
        document = answer.document() if options.json else ""
    if document:
        print(document)
    return int(answer.code)


def _interrupted(as_json: bool) -> int:
    interrupts.end()
    complain("interrupted", as_json=as_json)
    return INTERRUPTED


if __name__ == "__main__":
    raise SystemExit(main())
