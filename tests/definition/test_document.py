"""YAML as the language reads it: values, places, and everything that YAML would quietly accept."""

from __future__ import annotations

import time

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from hai_flow.definition.yaml.document import BYTES_MAX, parse
from tests.support.examples import examples


def messages(source: str | bytes) -> list[str]:
    raw = source.encode() if isinstance(source, str) else source
    return [str(finding) for finding in parse(raw, "f").findings]


def test_words_of_other_yamls_stay_text() -> None:
    value = parse(b"{a: on, b: no, c: yes, d: 12:30, e: 2020-01-01, f: 0o17, g: 0x1F, h: 1e3, i: ~, j: True}").value
    assert value == {
        "a": "on", "b": "no", "c": "yes", "d": "12:30", "e": "2020-01-01", "f": 15, "g": 31, "h": 1000.0, "i": None,
        "j": True,
    }  # fmt: skip


def test_quoted_scalars_are_text() -> None:
    assert parse(b"""{a: "1", b: 'true', c: ""}""").value == {"a": "1", "b": "true", "c": ""}


def test_keys_are_text_as_written() -> None:
    assert parse(b"{1: a, true: b, null: c}").value == {"1": "a", "true": "b", "null": "c"}


def test_a_byte_order_mark_and_windows_line_ends_are_accepted() -> None:
    document = parse(b"\xef\xbb\xbfa: 1\r\nb: |\r\n  x\r\n  y\r\n")
    assert document.value == {"a": 1, "b": "x\ny\n"}
    assert document.findings == ()


def test_aliases_are_expanded_and_keep_their_place() -> None:
    document = parse(b"a: &x {k: [1]}\nb: *x\n")
    assert document.value == {"a": {"k": [1]}, "b": {"k": [1]}}
    assert document.position(("b", "k")) == (1, 11)


@pytest.mark.parametrize(
    ("source", "place", "fragment"),
    [
        ("a: 1\nb: 2\na: 3\n", "f:3:1", "first at line 1"),
        ("{a: {b: 1, b: 2}}", "f:1:12", "first at line 1"),
        ("if: !x\n", "f:1:5", "must be quoted"),
        ("a: !!python/object:os.system x\n", "f:1:4", "YAML tag"),
        ("a: !!binary aGk=\n", "f:1:4", "!!binary"),
        ("<<: {a: 1}\n", "f:1:1", "merge keys"),
        ("a:\n\tb: 1\n", "f:2:1", "not with tabs"),
        ("\ta: 1\n", "f:1:1", "not with tabs"),
        ("a: 1\n---\nb: 2\n", "f:2:1", "second"),
        ("a: .nan\n", "f:1:4", "not a JSON number"),
        ("a: -.inf\n", "f:1:4", "not a JSON number"),
        ("a: 1e999\n", "f:1:4", "too large"),
        ("a: 9007199254740993\n", "f:1:4", "beyond 2^53"),
        ("a: " + "9" * 5000, "f:1:4", "beyond 2^53"),
        ("a: \x00\n", "f:1:4", "a NUL"),
        ("a: \x07\n", "f:1:4", "U+0007"),
        ("a: &x [*x]\n", "f:1:8", "inside its own anchor"),
        ("a: *nowhere\n", "f:1:4", "must be quoted"),
        ("? [a]\n: b\n", "f:1:3", "expected a key"),
        ("{{a: 1}: 2}", "f:1:2", "expected a key"),
        ("", "f:1:1", "empty file"),
        ("# nothing\n", "f:1:1", "empty file"),
        ("a: {b: ${{ x }\nc: 1}\n", "f:1:9", "the hole on line 1 has no end"),
        ("a: [${{ x }, 1]\n", "f:1:6", "the hole on line 1 has no end"),
        ("a: Total: ${{ x }}\n", "f:1:9", 'write a: "Total: ${{ x }}"'),
        ("a: @x\n", "f:1:4", "begins with `@`"),
        ("a: `x`\n", "f:1:4", "begins with"),
        ('a: "x" == y\n', "f:1:8", "quot"),
        ("a: 'x\n", "f:2:1", "quote"),
        ("a: [1, 2\n", "f:2:1", "bracket"),
        ("a:\n  - b\n - c\n", "f:3:2", "indentation"),
        ("*x : 1\n", "f:1:1", "expected a key"),
    ],
)
def test_what_yaml_would_accept_or_drop_is_a_finding(source: str, place: str, fragment: str) -> None:
    found = messages(source)
    assert len(found) == 1, found
    assert found[0].startswith(place + ":")
    assert fragment in found[0]


def test_other_encodings_are_findings() -> None:
    assert "UTF-16" in messages("a: 1".encode("utf-16"))[0]
    assert messages(b"a: b\nc: \xe9")[0].startswith("f:2:4:")


def test_a_nesting_bomb_is_refused_fast() -> None:
    began = time.process_time()
    assert "40 levels" in messages("[" * 50_000)[0]
    assert "40 levels" in messages("a: " * 1 + "{b: " * 100)[0]
    assert time.process_time() - began < 1


def test_an_alias_bomb_is_refused_fast() -> None:
    lines = ["a0: &a0 [x,x,x,x,x,x,x,x,x,x]"]
    lines += [f"a{n}: &a{n} [{','.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9)]
    began = time.process_time()
    assert "20,000 values" in messages("\n".join(lines))[0]
    assert time.process_time() - began < 1


def test_aliases_count_for_depth() -> None:
    lines = ["a0: &a0 [x]"] + [f"a{n}: &a{n} [*a{n - 1}]" for n in range(1, 60)]
    assert "40 levels" in messages("\n".join(lines))[0]


def test_a_file_beyond_256_kib_is_refused() -> None:
    assert "256 KiB" in messages(b"a: " + b"x" * BYTES_MAX)[0]


def test_places_are_found_through_folding_quotes_and_wide_characters() -> None:
    document = parse("é: |\n   中 foo bar\n   baz ${{ x }}\nb: '中 ''q'' ${{ y }}'\nc: >-\n  one\n  two\n".encode())
    assert document.locate(("é",), document.value["é"].index("x }}")) == (3, 12)
    assert document.locate(("b",), document.value["b"].index("y }}")) == (4, 17)
    assert document.locate(("c",), document.value["c"].index("two")) == (7, 3)
    assert document.position(("b",)) == (4, 4)
    assert document.position(("b",), key=True) == (4, 1)
    assert document.position(("absent", "deeper")) == (1, 1)


@settings(max_examples=examples(150), deadline=None)
@given(st.binary(max_size=200))
@example(b"&0")  # an anchor on nothing: null, written in one of too many ways to list
def test_arbitrary_bytes_never_raise(source: bytes) -> None:
    document = parse(source)
    written_null = document.root is not None and document.root.kind == "scalar"
    assert document.value is not None or document.findings or written_null


@settings(max_examples=examples(150), deadline=None)
@given(st.text(alphabet="ab:-{}[]\"'&*!|>%@#?,\n\t 01.~$", max_size=60))
def test_yaml_like_text_never_raises(source: str) -> None:
    for finding in parse(source.encode()).findings:
        assert finding.line >= 1
        assert finding.column >= 1


@pytest.mark.parametrize(
    ("source", "value"),
    [
        ('a: ${{ x ? "b" : "c" }}\nd: 1\n', {"a": '${{ x ? "b" : "c" }}', "d": 1}),
        ("- ${{ x ? y : z }}\n- is ${{ x ? y : z }} # so\n", ["${{ x ? y : z }}", "is ${{ x ? y : z }}"]),
        ('a: ${{ x == " #1" }}\n', {"a": '${{ x == " #1" }}'}),
        (
            '{a: ${{ x }}, b: [${{ y[0] }}, ${{ {"k": 1} }}]}\n',
            {"a": "${{ x }}", "b": ["${{ y[0] }}", '${{ {"k": 1} }}']},
        ),
        ("请求: ${{ 好 ? 是 : 否 }}\n", {"请求": "${{ 好 ? 是 : 否 }}"}),
    ],
)
def test_an_unquoted_hole_is_read_as_it_is_meant(source: str, value: object) -> None:
    document = parse(source.encode())
    assert (document.value, document.findings) == (value, ())


@pytest.mark.parametrize(
    "source",
    [
        'a: |\n  x: ${{ a : b }} # kept\nb: "q ${{ a ? b : c }}"\nc: \'${{ d ? "e: f" : g }}\'\n',
        "# ${{ a : b }}\na: $${{ b }}\nd: ${{ e }}\n",
        "a: \"\ue000 ${{ b == ' \ue001: ' }}\"\nc: {d: \ue002}\n",
        "a: b # ${{ c : d }}\ne: f\n",
    ],
)
def test_what_yaml_reads_by_itself_is_not_changed(source: str) -> None:
    """Also where the text holds characters of private use, which hide the holes from YAML."""
    read = parse(source.encode())
    assert (read.value, read.findings) == (yaml.load(source, Loader=yaml.CSafeLoader), ())


@pytest.mark.parametrize("hole", ["${{ x ? y : z }}", "${{ x #y }}", "${{ {'a': [1, 2]} }}"])
@pytest.mark.parametrize("frame", ["a: HOLE\nb: *c\n", "{a: HOLE, b: *c, d: [HOLE, *e]}\n", "a: {b: HOLE}\nc: @d\n"])
def test_a_hole_moves_no_finding_of_what_comes_behind_it(frame: str, hole: str) -> None:
    found = parse(frame.replace("HOLE", hole).encode()).findings
    plain = parse(frame.replace("HOLE", "x" * len(hole)).encode()).findings
    assert found == plain != ()


def test_a_place_inside_of_an_unquoted_hole_is_found() -> None:
    document = parse("a: 1\nb: ${{ 好 ? b.c : d }}\n".encode())
    assert document.locate(("b",), document.value["b"].index("d")) == (2, 18)


@pytest.mark.parametrize(
    "unit",
    [
        " ", "\t", "- ", "a ", "a: ", "{", "[", "'", '"', "#", "\r", "&a ", "*a ", "! ",
        "${{ ", "${{a}}", "${{ { ", "${{ ' }} ", "${{ \"\"\" ",
    ],
)  # fmt: skip
def test_a_line_as_long_as_a_document_may_be_is_explained_at_once(unit: str) -> None:
    """One of blanks took minutes: the pattern that looks for a text to quote tried every way to part them. One of holes
    that do not end took an hour: each was looked for to the end of the line."""
    line = "title: a: b" + unit * (200_000 // len(unit)) + "'"
    assert parse(f"hai: flow/v1\n{line}\n".encode()).findings


def test_positions_in_a_text_of_thousands_of_words_take_one_pass() -> None:
    """A warning in each of 1,500 holes of one text took seconds."""
    words = [f"w{number}" for number in range(20_000)]
    document = parse(("a: " + " ".join(words) + "\n").encode())
    begun = time.thread_time()
    for at in range(0, 20_000, 10):
        offset = sum(map(len, words[:at])) + at if at < 50 else at * 5
        document.locate(("a",), offset)
    assert time.thread_time() - begun < 1
