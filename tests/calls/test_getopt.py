"""srun's words are read as getopt_long does."""

from __future__ import annotations

from collections.abc import Sequence

import hypothesis.strategies as st
import pytest
from hypothesis import given

from penstock.calls import getopt, srunoptions

TABLE = srunoptions.table((22, 5))
LATEST = srunoptions.table((26, 5))


def read(
    words: Sequence[bytes], table: srunoptions.Table = TABLE
) -> tuple[list[tuple[str, bytes | None]], list[bytes]]:
    parsed = getopt.parse(words, table)
    assert not parsed.wrong
    return [(setting.option.name, setting.value) for setting in parsed.settings], list(parsed.command)


@pytest.mark.parametrize(
    ("text", "settings", "command"),
    [
        ("hostname", [], "hostname"),
        ("-n4 hostname -n5", [("ntasks", "4")], "hostname -n5"),
        ("-n 4 -N2 x", [("ntasks", "4"), ("nodes", "2")], "x"),
        ("--ntasks=4 --ntasks 5 x", [("ntasks", "4"), ("ntasks", "5")], "x"),
        ("--ntasks-per-n=4 x", [("ntasks-per-node", "4")], "x"),
        ("--tasks=4 x", [("tasks-per-node", "4")], "x"),
        ("--cpu_b=none --cpu-b none x", [("cpu_bind", "none"), ("cpu-bind", "none")], "x"),
        ("-luK0 x", [("label", None), ("unbuffered", None), ("kill-on-bad-exit", "0")], "x"),
        ("-K 0", [("kill-on-bad-exit", None)], "0"),
        ("--exclusive user", [("exclusive", None)], "user"),
        ("--exclusive=user x", [("exclusive", "user")], "x"),
        ("-ln4 x", [("label", None), ("ntasks", "4")], "x"),
        ("-n -4 x", [("ntasks", "-4")], "x"),
        ("-J -- -n1 x", [("job-name", "--"), ("ntasks", "1")], "x"),
        ("-l -- -n 4", [("label", None)], "-n 4"),
        ("-l - -n 4", [("label", None)], "- -n 4"),
        ("--input none x", [("input", "none")], "x"),
        ("--export= x", [("export", "")], "x"),
        ("", [], ""),
    ],
)
def test_forms_of_options(text: str, settings: list[tuple[str, str | None]], command: str) -> None:
    """Prefixes, bundles, values glued on or in the next word, and the end at the first other word."""
    expected = [(name, None if value is None else value.encode()) for name, value in settings]
    assert read(text.encode().split()) == (expected, command.encode().split())


def test_options_of_a_release() -> None:
    """--pty takes a value since 23.02, and --external-launcher came with 23.11."""
    assert getopt.parse([b"--pty=1", b"x"], TABLE).wrong == b"option '--pty' doesn't allow an argument"
    assert read([b"--pty=1", b"--external-launcher", b"x"], LATEST)[0] == [
        ("pty", b"1"),
        ("external-launcher", None),
    ]
    assert getopt.parse([b"--external-launcher"], TABLE).wrong == b"unrecognized option '--external-launcher'"


def test_pyxis_makes_no_option_of_srun_ambiguous() -> None:
    """--container is srun's, --container-image is Pyxis', --cont is ambiguous without Pyxis too."""
    assert read([b"--container=x", b"--container-im=y", b"z"])[0] == [
        ("container", b"x"),
        ("container-image", b"y"),
    ]
    assert getopt.parse([b"--cont=x"], TABLE).wrong == (
        b"option '--cont=x' is ambiguous; possibilities: '--container' '--context' '--contiguous'"
    )


def test_settings_before_a_wrong_word_are_kept() -> None:
    parsed = getopt.parse([b"-V", b"--foo", b"-n4"], TABLE)
    assert [setting.option.name for setting in parsed.settings] == ["version"]
    assert parsed.wrong == b"unrecognized option '--foo'"


@st.composite
def written(draw: st.DrawFn) -> tuple[srunoptions.Option, bytes | None, list[bytes]]:
    """An option with a value, in one of its spellings."""
    option = draw(
        st.sampled_from([option for option in LATEST.options if option.name and not option.of_pyxis])
    )
    takes = {"none": False, "required": True, "optional": draw(st.booleans())}[option.argument]
    value = draw(st.binary(min_size=1).filter(lambda text: b"\0" not in text)) if takes else None
    name = draw(st.sampled_from(_prefixes(option)))
    long, short = b"--" + name.encode(), b"-" + option.short.encode()
    if value is None:
        spellings = [[long], *([[short]] if option.short else [])]
    else:
        spellings = [[long + b"=" + value], *([[short + value]] if option.short else [])]
        if option.argument == "required":
            spellings += [[long, value], *([[short, value]] if option.short else [])]
    return option, value, draw(st.sampled_from(spellings))


def _prefixes(option: srunoptions.Option) -> list[str]:
    prefixes = [option.name[:end] for end in range(1, len(option.name) + 1)]
    return [prefix for prefix in prefixes if LATEST.matching(prefix) == (option,)]


@given(st.lists(written(), max_size=6), st.lists(st.binary(), max_size=3))
def test_every_spelling_means_the_same(
    options: list[tuple[srunoptions.Option, bytes | None, list[bytes]]], more: list[bytes]
) -> None:
    """Whatever the value, and whatever follows the command."""
    words = [word for _, _, spelling in options for word in spelling]
    expected = [(option.name, value) for option, value, _ in options]
    assert read([*words, b"program", *more], LATEST) == (expected, [b"program", *more])


@given(
    st.lists(st.one_of(st.binary(max_size=8), st.sampled_from([b"-", b"--", b":", b"-n", b"--no", b"-lK"])))
)
def test_any_words_are_settings_and_a_command_or_wrong(words: list[bytes]) -> None:
    """The command is always the end of the words."""
    parsed = getopt.parse(words, TABLE)
    assert not parsed.wrong or not parsed.command
    assert list(parsed.command) == words[len(words) - len(parsed.command) :]
