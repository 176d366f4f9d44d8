"""The scripts for shells: what bash and fish complete, where they are installed, and the text for all three."""

import json
import shutil
import subprocess
import sys

import pytest

from certirl.cli import main, verbs

BASH = """
source ./script
complete_words() {
  COMP_WORDS=("$@"); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); COMP_LINE="$*"; COMP_POINT=${#COMP_LINE}; COMPREPLY=()
  _shtab_certirl certirl "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
  echo "${COMPREPLY[*]}"
}
complete_words certirl so
complete_words certirl solve --ob
complete_words certirl solve --objective ""
complete_words certirl solve lo
complete_words certirl solve log.csv --discount 0.9 --expert se
complete_words certirl completion ""
"""
FISH = """
source ./script
for words in "certirl so" "certirl solve --ob" "certirl solve --objective "
  echo (complete -C $words | string split --fields 1 \\t)
end
"""
COMPLETED = ["solve", "--objective", "least-variance l1 max-margin", "log.csv", "seen.csv", "bash zsh fish"]


@pytest.fixture
def script(tmp_path, monkeypatch, capsys):
    """Writes the script of a shell to a file beside a log and demonstrations."""
    pytest.importorskip("shtab", reason="shtab is not installed")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "log.csv").touch()
    (tmp_path / "seen.csv").touch()

    def write(shell):
        assert main(["completion", shell]) == 0
        text = capsys.readouterr().out
        (tmp_path / "script").write_text(text)
        return text

    return write


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_names_every_command_and_is_valid(script, shell, capsys):
    text = script(shell)
    assert all(verb.name in text for verb in verbs()) and "allow-repeats" in text
    if shutil.which(shell):
        subprocess.run([shell, "-n", "script"], check=True)
    assert main(["completion", shell, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"shell": shell, "script": text.removesuffix("\n")}


def completed(shell, commands):
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    done = subprocess.run([shell, "-c", commands], capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def test_bash_completes_commands_options_choices_and_files(script):
    script("bash")
    assert completed("bash", BASH) == COMPLETED


def test_fish_completes_commands_options_and_choices(script):
    script("fish")
    assert completed("fish", FISH) == COMPLETED[:3]


def test_without_shtab_a_sentence_says_what_to_install(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "shtab", None)
    assert main(["completion", "bash"]) == 2
    assert 'pip install "certirl[completion]"' in capsys.readouterr().err
