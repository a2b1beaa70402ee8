"""The language server as editors use it."""

from __future__ import annotations

import json
import random
import statistics
import time
from pathlib import Path
from typing import Final

import pytest
from lsprotocol import types as t
from pygls.exceptions import JsonRpcException
from typer.testing import CliRunner

from hai_flow.cli import app
from tests.lsp.conftest import Editor
from tests.support.values import require

pytestmark = pytest.mark.costly

ROOT: Final = Path(__file__).resolve().parents[2]
TEXT: Final = """hai: flow/v1
name: order
version: 1
input:
  type: object
  properties:
    amount: {type: integer, description: In euros.}
    customer: {type: object, properties: {city: {type: string}}}
tools:
  shop: {python: shop}
steps:
  - id: pay
    call: shop.pay
    with: {amount: 5}
  - id: ask
    ask: {title: "Ünd 🚀?", form: {type: object, properties: {size: {type: string}}}}
  - if: steps.pay.output != null
    say: "🚀 ${{ steps.pay.output }} ${{ steps[\\"pay\\"].status }} steps.pay"
  - run: kid
"""
SHOP: Final = "X = 1\n\n\ndef pay(amount: int, note: str = ''):\n    ...\n\n\ndef refund(amount: int):\n    ...\n"
KID: Final = "hai: flow/v1\nname: kid\nversion: 1\nsteps:\n  - say: hi\n"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "shop.py").write_text(SHOP)
    (tmp_path / "kid.flow.yaml").write_text(KID)
    return tmp_path


async def test_findings_come_as_one_types_with_the_code_the_range_and_the_fix(project: Path, editor: Editor) -> None:
    assert await editor.write("order.flow.yaml", TEXT) == []
    wrong = TEXT.replace("shop.pay", "shop.pai").replace("🚀 ${{ steps.pay", "🚀 ${{ steps.pai")
    call, step = await editor.write("order.flow.yaml", wrong)
    assert (call.code, call.severity) == ("tool.no_function", t.DiagnosticSeverity.Error)
    line = wrong.split("\n")[17]
    units = len(line[: line.index("pai")].encode("utf-16-le")) // 2
    assert (step.range.start.line, step.range.start.character) == (17, units)
    document = t.TextDocumentIdentifier(editor.uri("order.flow.yaml"))
    actions = await editor.client.text_document_code_action_async(
        t.CodeActionParams(document, step.range, t.CodeActionContext([]))
    )
    assert actions is not None
    action = actions[0]
    assert isinstance(action, t.CodeAction)
    assert action.edit is not None
    assert action.edit.changes is not None
    (edit,) = action.edit.changes[document.uri]
    assert (edit.range, edit.new_text) == (step.range, "pay")
    assert await editor.write("order.flow.yaml", TEXT) == []


async def test_what_may_be_written_is_offered(project: Path, editor: Editor) -> None:
    name = "order.flow.yaml"
    assert await editor.labels(name, TEXT, 'say: "🚀 ${{ steps.') == ["ask", "pay"]
    assert await editor.labels(name, TEXT + "  - say: ${{ steps.ask.output.", "steps.ask.output.") == ["size"]
    assert await editor.labels(name, TEXT + "  - say: ${{ input.customer.", "input.customer.") == ["city"]
    assert await editor.labels(name, TEXT + "  - if: input.", "- if: input.") == ["amount", "customer"]
    assert await editor.labels(name, TEXT + "  - call: ", "  - call: ") == ["shop.pay", "shop.refund"]
    assert await editor.labels(name, TEXT + "  - run: ", "kid\n  - run: ") == ["kid"]
    new = await editor.labels(name, TEXT + "  - ", "kid\n  - ")
    assert new[:3] == ["call", "http", "llm"]
    assert "id" in new[15:]
    beside = await editor.labels(name, TEXT + "  - call: shop.pay\n    ", "- call: shop.pay\n    ")
    assert "with" in beside
    assert "http" not in beside
    nested = await editor.labels(name, TEXT + "  - approve:\n      ", "- approve:\n      ")
    assert {"title", "from", "quorum"} <= set(nested)
    arguments = await editor.labels(name, TEXT + "  - call: shop.pay\n    with:\n      ", "with:\n      ")
    assert arguments == ["amount", "note"]
    top = await editor.labels(name, TEXT.replace("version: 1\n", "version: 1\non\n"), "version: 1\non")
    assert "on_message" in top
    assert await editor.labels(name, TEXT.replace("version: 1\n", "on_message: \n"), "on_message: ") != []


async def test_a_tool_is_offered_with_its_arguments(project: Path, editor: Editor) -> None:
    text = TEXT + "  - call: sh"
    await editor.write("order.flow.yaml", text)
    place = editor.at("order.flow.yaml", text, "  - call: sh")
    found = await editor.client.text_document_completion_async(t.CompletionParams(**place))
    assert isinstance(found, t.CompletionList)
    assert (found.items[0].detail, found.items[0].text_edit and found.items[0].text_edit.new_text) == (
        "(amount, note?)",
        "shop.pay\n    with:\n      amount: ",
    )


async def test_hovers_definitions_and_outlines(project: Path, editor: Editor) -> None:
    name, client = "order.flow.yaml", editor.client
    await editor.write(name, TEXT)

    async def hover(mark: str) -> str:
        found = await client.text_document_hover_async(t.HoverParams(**editor.at(name, TEXT, mark)))
        return found.contents.value if found and isinstance(found.contents, t.MarkupContent) else ""

    async def target(mark: str) -> tuple[str, int]:
        found = await client.text_document_definition_async(t.DefinitionParams(**editor.at(name, TEXT, mark)))
        assert isinstance(found, t.Location)
        return found.uri.rpartition("/")[2], found.range.start.line

    assert "Output: " in await hover("    as")
    assert "shop.pay**(amount, note?)" in await hover("call: shop.p")
    assert "call" in await hover("if: steps.pa")
    assert await target("if: steps.pa") == (name, 11)
    assert await target("call: shop.p") == ("shop.py", 3)
    assert await target("run: ki") == ("kid.flow.yaml", 0)
    document = t.TextDocumentIdentifier(editor.uri(name))
    symbols = require(await client.text_document_document_symbol_async(t.DocumentSymbolParams(document)))
    assert [each.name for each in symbols] == ["pay", "ask", "say#1", "run#1"]


async def test_a_step_is_renamed_in_its_id_and_in_all_holes_and_expressions(project: Path, editor: Editor) -> None:
    name = "order.flow.yaml"
    await editor.write(name, TEXT)
    place = editor.at(name, TEXT, "if: steps.pa")
    edit = require(await editor.client.text_document_rename_async(t.RenameParams(**place, new_name="book")))
    assert edit.changes is not None
    lines = [str(line) for line in TEXT.split("\n")]
    for each in sorted(edit.changes[editor.uri(name)], key=lambda each: -each.range.start.character):
        raw = lines[each.range.start.line].encode("utf-16-le")
        start, end = each.range.start.character * 2, each.range.end.character * 2
        lines[each.range.start.line] = (raw[:start] + each.new_text.encode("utf-16-le") + raw[end:]).decode("utf-16-le")
    expected = TEXT.replace("id: pay", "id: book").replace("if: steps.pay", "if: steps.book")
    expected = expected.replace("${{ steps.pay", "${{ steps.book").replace('steps[\\"pay', 'steps[\\"book')
    assert "\n".join(lines) == expected
    with pytest.raises(Exception, match="another step has the id `ask`"):
        await editor.client.text_document_rename_async(t.RenameParams(**place, new_name="ask"))


TESTED: Final = """hai: test/v1
workflow: order.flow.yaml
mock:
  shop.pay: {output: 1}
  pay: {output: 2}
cases:
  - name: pay
    mock: {"pay": {output: 3}}
    script:
      - {answer: {pending: pay, value: {}}}
      - {answer: {pending: 'all[1]/pay[0]/pay', value: {pay: pay}}}
    expect: {pending: [ask, pay], steps: {pay: {status: finished}}, calls: {shop.pay: 1}}
"""


async def test_a_step_is_renamed_in_the_tests_beside_it_too(project: Path, editor: Editor) -> None:
    (project / "order.test.yaml").write_text(TESTED)
    (project / "other.test.yaml").write_text(TESTED.replace("order.flow", "kid.flow"))
    await editor.write("order.flow.yaml", TEXT)
    place = editor.at("order.flow.yaml", TEXT, "if: steps.pa")
    edit = require(await editor.client.text_document_rename_async(t.RenameParams(**place, new_name="book")))
    assert edit.changes is not None
    assert edit.changes.keys() == {editor.uri("order.flow.yaml"), editor.uri("order.test.yaml")}
    lines = [str(line) for line in TESTED.split("\n")]
    for each in sorted(edit.changes[editor.uri("order.test.yaml")], key=lambda each: -each.range.start.character):
        line, start, end = each.range.start.line, each.range.start.character, each.range.end.character
        lines[line] = lines[line][:start] + each.new_text + lines[line][end:]
    expected = TESTED.replace("  pay: {output: 2}", "  book: {output: 2}").replace('{"pay": {', '{"book": {')
    expected = expected.replace("pending: pay,", "pending: book,").replace(
        "'all[1]/pay[0]/pay'", "'all[1]/book[0]/book'"
    )
    expected = expected.replace("[ask, pay], steps: {pay:", "[ask, book], steps: {book:")
    assert "\n".join(lines) == expected


async def test_formatting_quotes_holes_that_yaml_alone_can_not_read(project: Path, editor: Editor) -> None:
    text = 'hai: flow/v1\nname: a\nversion: 1\nsteps:\n  - say: ${{ true ? "a" : "b" }}\n'
    await editor.write("a.flow.yaml", text)
    document = t.TextDocumentIdentifier(editor.uri("a.flow.yaml"))
    params = t.DocumentFormattingParams(document, t.FormattingOptions(2, True))
    edits = require(await editor.client.text_document_formatting_async(params))
    assert 'say: \'${{ true ? "a" : "b" }}\'' in edits[0].new_text


async def test_the_last_good_outline_and_picture_stay_while_a_document_is_broken(project: Path, editor: Editor) -> None:
    name = "order.flow.yaml"
    await editor.write(name, TEXT)
    for broken in ("", "\x00", "steps: [" * 3000, "- " * 50_000, TEXT + "\n\t}{", "x" * 300_000, "a: &a [*a]\n"):
        assert await editor.write(name, broken) != []
        symbols = await editor.client.text_document_document_symbol_async(
            t.DocumentSymbolParams(t.TextDocumentIdentifier(editor.uri(name)))
        )
        assert symbols is not None
        assert [each.name for each in symbols][:2] == ["pay", "ask"]
    asked = {"uri": editor.uri(name), "format": "mermaid"}
    graph = await editor.client.protocol.send_request_async("haiFlow/graph", asked)
    assert graph.current is False
    assert "pay" in graph.picture
    assert editor.logs == []


async def test_a_text_with_windows_line_ends_is_answered_in_place(project: Path, editor: Editor) -> None:
    name, client = "order.flow.yaml", editor.client
    (project / "order.test.yaml").write_bytes(TESTED.replace("\n", "\r\n").encode())
    text = TEXT.replace("${{ steps.pay.output }}", '${{ true ? "a" : "b" }}').replace('say: "🚀', "say: 🚀")
    text = text.replace('${{ steps[\\"pay\\"].status }} steps.pay"', "${{ steps.pay.status }}")
    for number, ends in enumerate(("\n", "\r\n", "\r")):
        written = f"{text}# {number}\n".replace("\n", ends)
        assert await editor.write(name, written) == []
        place = editor.at(name, text, "if: steps.pa")
        hover = require(await client.text_document_hover_async(t.HoverParams(**place)))
        assert "call" in str(hover.contents)
        target = await client.text_document_definition_async(t.DefinitionParams(**place))
        assert isinstance(target, t.Location)
        assert (target.range.start.line, target.range.start.character) == (11, 8)
        edit = require(await client.text_document_rename_async(t.RenameParams(**place, new_name="book")))
        assert edit.changes is not None
        starts = [(each.range.start.line, each.range.start.character) for each in edit.changes[editor.uri(name)]]
        assert starts == [(11, 8), (16, 14), (17, 46)]
        assert len(edit.changes[editor.uri("order.test.yaml")]) == 7
    written = text.replace("\n", "\r\n")
    await editor.write(name, written)
    document = t.TextDocumentIdentifier(editor.uri(name))
    params = t.DocumentFormattingParams(document, t.FormattingOptions(2, True))
    edits = await client.text_document_formatting_async(params)
    assert edits
    assert edits[0].new_text.count("\r\n") == edits[0].new_text.count("\n") > 10
    await editor.write(name, written + "  - call: sh")
    place = editor.at(name, text + "  - call: sh", "  - call: sh")
    offers = await client.text_document_completion_async(t.CompletionParams(**place))
    assert isinstance(offers, t.CompletionList)
    assert offers.items[0].text_edit is not None
    assert offers.items[0].text_edit.new_text == "shop.pay\r\n    with:\r\n      amount: "


async def test_a_hole_over_several_lines_is_offered_names(project: Path, editor: Editor) -> None:
    members = ["output", "status", "error", "approval"]
    for head in ("say: ${{ 1 +", 'say: "${{ 1 +', "say: >-\n      ${{ 1 +", "if: >-\n      1 +"):
        text = f"{TEXT}  - {head}\n      steps.pay."
        assert await editor.labels("order.flow.yaml", text, "\n      steps.pay.") == members
    asked = TEXT.replace(
        "    with: {amount: 5}\n", "    with: {amount: 5}\n    approval: {from: anyone, deadline: 1d}\n"
    )
    labels = await editor.labels("order.flow.yaml", f"{asked}  - say: ${{{{ steps.pay.", "- say: ${{ steps.pay.")
    assert labels[:2] == ["output", "approval"]
    below = await editor.labels("order.flow.yaml", f"{TEXT}  - say: ${{{{ 1 +\n    ", "  - say: ${{ 1 +\n    ")
    assert "if" in below
    assert "steps" not in below


@pytest.mark.parametrize("broken", ["\tsteps:\n", "steps: [{say: hi\n", 'steps: ["', "a: b: c\n"])
async def test_a_text_that_is_broken_from_the_first_ends_nothing(project: Path, editor: Editor, broken: str) -> None:
    name, client = "order.flow.yaml", editor.client
    text = f"hai: flow/v1\nname: order\nversion: 1\n{broken}"
    assert await editor.write(name, text) != []
    place = editor.at(name, text, "hai: flow")
    assert await client.text_document_definition_async(t.DefinitionParams(**place)) is None
    await client.text_document_hover_async(t.HoverParams(**place))
    with pytest.raises(JsonRpcException, match="there is no step with an id here"):
        await client.text_document_rename_async(t.RenameParams(**place, new_name="book"))
    document = t.TextDocumentIdentifier(editor.uri(name))
    assert await client.text_document_document_symbol_async(t.DocumentSymbolParams(document)) == []
    assert await editor.write(name, TEXT) == []
    assert await editor.write(name, text) != []
    symbols = await client.text_document_document_symbol_async(t.DocumentSymbolParams(document))
    assert [each.name for each in symbols or ()] == ["pay", "ask", "say#1", "run#1"]
    assert editor.logs == []


def broken_files(count: int) -> list[str]:
    """Texts of workflows in which a line, a word or a sign is another one, or is missing."""
    random_ = random.Random(7)
    texts = [path.read_text() for path in sorted((ROOT / "workflows").rglob("*.flow.yaml"))]
    found = []
    while len(found) < count:
        lines = random_.choice(texts).split("\n")
        index = random_.randrange(len(lines))
        match random_.randrange(5):
            case 0:
                del lines[index]
            case 1:
                lines[index] = lines[index].replace("e", "", 1)
            case 2:
                lines[index] = " " + lines[index]
            case 3:
                lines[index] = lines[index].replace(":", "", 1)
            case _:
                lines.insert(index, lines[random_.randrange(len(lines))])
        found.append("\n".join(lines))
    return found


async def test_the_findings_of_two_hundred_broken_files_are_those_of_validate(
    project: Path, editor: Editor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(project)
    some = 0
    for text in broken_files(200):
        told = [each.data for each in await editor.write("order.flow.yaml", text)]
        (project / "order.flow.yaml").write_text(text)
        printed = json.loads(CliRunner().invoke(app, ["validate", "--json", "order.flow.yaml"]).stdout)["findings"]
        assert json.dumps(told) == json.dumps(printed)
        some += bool(told)
    assert some > 100


async def test_findings_of_a_document_of_500_steps_come_soon_after_a_key(project: Path, editor: Editor) -> None:
    steps = "".join(f"  - id: s{n}\n    say: ${{{{ input.amount + {n} }}}}\n" for n in range(500))
    text = TEXT[: TEXT.index("steps:")] + "steps:\n" + steps
    await editor.write("order.flow.yaml", text)
    seconds = []
    for n in range(7):
        began = time.perf_counter()
        await editor.write("order.flow.yaml", text + f"  - say: x{n}\n")
        seconds.append(time.perf_counter() - began)
    assert min(seconds) < 0.5, statistics.median(seconds)  # 0.1 s where nothing else runs
