"""Whence secrets come, and who may send them where."""

from __future__ import annotations

import asyncio
import base64
import random
import sys
import time
from pathlib import Path
from secrets import token_urlsafe

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from hai_flow.errors import StepError
from hai_flow.steps import secrets as steps_secrets
from hai_flow.steps.hiding import HIDDEN, Hider
from hai_flow.steps.secrets import Secrets, Source, Use, hide_in_attempt, hide_secrets, remember
from hai_flow.steps.secrets_file import read_secrets

DISK = Use("any.host", "w", from_disk=True)


async def fault(secrets: Secrets, name: str, use: Use = DISK) -> str:
    with pytest.raises(StepError) as raised:
        await secrets.value(name, use)
    assert raised.value.retriable is (raised.value.code == "secret.missing")
    return f"{raised.value.code} {raised.value.message}"


async def test_a_secret_comes_from_the_environment_a_file_or_a_program(tmp_path: Path) -> None:
    (tmp_path / "bank").write_text("of a file\n")
    count = tmp_path / "count"
    says = f"import pathlib; p = pathlib.Path({str(count)!r}); p.open('a').write('x'); print('of a program')"
    sources = {
        "OTHER": Source(env="OTHER_NAME"),
        "BANK": Source(file=tmp_path / "bank"),
        "VAULT": Source(command=(sys.executable, "-c", says)),
    }
    secrets = Secrets({"PLAIN": "of the environment"}, sources, {"OTHER_NAME": "under another name"})
    found = [await secrets.value(name, DISK) for name in ("PLAIN", "OTHER", "BANK", "VAULT", "VAULT")]
    assert found == ["of the environment", "under another name", "of a file", "of a program", "of a program"]
    assert count.read_text() == "x", "what a program said is kept for a while"


async def test_what_is_not_there_is_said_without_its_value(tmp_path: Path) -> None:
    fails = (sys.executable, "-c", "import sys; print('half'); sys.exit(3)")
    sources = {"A": Source(env="NOT_SET"), "B": Source(file=tmp_path / "b"), "C": Source(command=fails)}
    sources["D"] = Source(command=(str(tmp_path / "nothing"),))
    secrets = Secrets({}, sources)
    assert await fault(secrets, "X") == "secret.missing the secret `X` is not there: HAI_FLOW_SECRET_X is not set."
    assert "NOT_SET is not set" in await fault(secrets, "A")
    assert "can't be read: FileNotFoundError" in await fault(secrets, "B")
    said = await fault(secrets, "C")
    assert "ended with 3" in said
    assert "half" not in said
    assert "can't be started" in await fault(secrets, "D")


async def test_a_published_workflow_sends_secrets_only_where_the_deployment_says() -> None:
    sources = {"S": Source(hosts=("a.test", "*.b.test"), workflows=("w",)), "T": Source()}
    secrets = Secrets({"S": "s-value", "T": "t-value", "U": "u-value"}, sources)
    for host in ("a.test", "A.test.", "x.b.test"):
        assert await secrets.value("S", Use(host, "w")) == "s-value"
    for host in ("b.test", "xb.test", "a.test.evil", ""):
        assert (await fault(secrets, "S", Use(host, "w"))).startswith("secret.refused")
    assert "it is for w only" in await fault(secrets, "S", Use("a.test", "other"))
    for name in ("T", "U"):
        assert "nothing says to which hosts" in await fault(secrets, name, Use("a.test", "w"))
        assert await secrets.value(name, DISK)
        assert await secrets.value(name, Use("models.test", ours=True))
    assert (await fault(secrets, "S", Use("c.test", "w", from_disk=True))).startswith("secret.refused")


async def test_a_secret_is_bound_to_the_workflows_of_its_tenants() -> None:
    sources = {
        "OURS": Source(hosts=("a.test",), workflows=("w",)),
        "ACME": Source(hosts=("a.test",), workflows=("w",), tenants=("acme",)),
        "ALL": Source(hosts=("a.test",), tenants=("*",)),
        "NOBODY": Source(hosts=("a.test",), tenants=()),
    }
    secrets = Secrets({name: f"value of {name}" for name in [*sources, "UNNAMED"]}, sources)
    for name, tenants in (("OURS", {"default"}), ("ACME", {"acme"}), ("ALL", {"default", "acme", ""}), ("NOBODY", {})):
        for tenant in ("default", "acme", ""):
            if tenant in tenants:
                assert await secrets.value(name, Use("a.test", "w", tenant=tenant))
            else:
                said = await fault(secrets, name, Use("a.test", "w", tenant=tenant))
                assert said.startswith(f"secret.refused the secret `{name}` is not for this: it is for workflows of")
    assert "for w only" in await fault(secrets, "ACME", Use("a.test", "other", tenant="acme"))
    assert await secrets.value("UNNAMED", DISK)
    assert "of the tenant default only" in await fault(secrets, "UNNAMED", Use("", "w", from_disk=True, tenant="acme"))
    assert await secrets.value("NOBODY", Use("a.test", ours=True)), "the deployment itself uses it"


async def test_what_was_resolved_is_hidden_wherever_it_turns_up() -> None:
    secrets = Secrets({"S": "canary-1", "SHORT": "ab"})
    assert hide_secrets({"a": "canary-1"}) == {"a": "canary-1"}, "nobody has used it yet"
    await secrets.value("S", DISK)
    await secrets.value("SHORT", DISK)
    value = {"a": ["x canary-1 y", 1, None], "canary-1": "ab"}
    assert hide_secrets(value) == {"a": [f"x {HIDDEN} y", 1, None], HIDDEN: "ab"}


def test_a_file_of_secrets_is_read_and_its_mistakes_have_a_place() -> None:
    source = b"hai: secrets/v1\nsecrets:\n  A: {command: [vault, read], every: 1m, hosts: [a.test]}\n  B: {}\n"
    found, findings = read_secrets(source, "s.yaml")
    (of_acme,) = read_secrets(b"hai: secrets/v1\nsecrets: {A: {tenants: [acme]}}\n", "s.yaml")[0].values()
    assert of_acme == Source(tenants=("acme",))
    assert (findings, found["B"]) == ([], Source())
    assert found["A"] == Source(command=("vault", "read"), every=60.0, hosts=("a.test",))
    wrong = b"hai: secrets/v1\nsecrets:\n  A: {env: X, file: /y}\n  B: {evn: X}\n  C: {every: soon, command: [x]}\n"
    _, findings = read_secrets(wrong, "s.yaml")
    assert [str(finding).split(" ")[0] for finding in findings] == ["s.yaml:3:15:", "s.yaml:4:7:", "s.yaml:5:14:"]


async def test_a_command_of_the_deployment_is_asked_for_what_nothing_else_has(tmp_path: Path) -> None:
    count = tmp_path / "count"
    says = f"import pathlib, sys; pathlib.Path({str(count)!r}).open('a').write('x'); print('value of ' + sys.argv[1])"
    command = (sys.executable, "-c", says)
    secrets = Secrets({"PLAIN": "of the environment"}, {"A": Source(), "B": Source(env="NOT_SET")}, {}, command)
    assert await secrets.value("PLAIN", DISK) == "of the environment"
    found = await asyncio.gather(*(secrets.value("A", DISK) for _ in range(20)))
    assert set(found) == {"value of A"}
    assert count.read_text() == "x", "those who ask at once are told at once"
    assert await secrets.value("OTHER", DISK) == "value of OTHER"
    assert "NOT_SET is not set" in await fault(secrets, "B"), "the file says where it is"
    assert secrets.absent("ANY") is None
    assert (await fault(secrets, "OTHER", Use("a.test", "w"))).startswith("secret.refused")


async def test_a_command_that_says_too_much_or_nothing_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    for does, why in (("while True: print('x' * 1000)", "said more than"), ("import time; time.sleep(60)", "nothing")):
        secrets = Secrets({}, {}, {}, (sys.executable, "-c", does))
        monkeypatch.setattr(steps_secrets, "COMMAND_SECONDS", 20.0 if "more" in why else 0.5)
        assert why in await fault(secrets, "A")


async def test_no_shell_reads_a_name_or_a_command() -> None:
    secrets = Secrets({}, {}, {}, (sys.executable, "-c", "import sys; print(sys.argv[1:])", "$HOME; echo x"))
    assert await secrets.value("A", DISK) == "['$HOME; echo x', 'A']"


async def test_a_secret_may_be_for_some_tools_alone() -> None:
    sources = {"S": Source(tools=("acme.shop.refund", "acme.mail.*"))}
    secrets = Secrets({"S": "s-value"}, sources)
    for tool in ("acme.shop.refund", "acme.mail", "acme.mail.send"):
        assert await secrets.value("S", replace(DISK, tool=tool)) == "s-value"
    for tool in ("acme.shop", "acme.shop.pay", "acme.mailer.send", ""):
        said = await fault(secrets, "S", replace(DISK, tool=tool))
        assert said.startswith("secret.refused the secret `S` is not for this: it is for the tools acme.shop.refund")


def test_other_forms_of_a_secret_are_hidden_too() -> None:
    remember("geheim/ +1")
    assert hide_secrets("a?k=geheim%2F%20%2B1 Z2VoZWltLyArMQ== geheim/ +1") == "a?k=[secret] [secret]== [secret]"


@pytest.mark.parametrize(
    "written",
    [
        r"a\/b<c>&'+\u00e9",
        r"a/b\u003cc\u003e\u0026'+é",
        r"a/b\u003Cc\u003E\u0026\u0027\u002B\u00e9",
        "a/b&lt;c&gt;&amp;'+é",
        "a/b&lt;c&gt;&amp;&#39;+é",
        "a/b&lt;c&gt;&amp;&#x27;+é",
        "a%2fb%3cc%3e%26%27%2b%c3%a9",
    ],
)
def test_a_secret_is_hidden_as_the_writers_of_services_escape_it(written: str) -> None:
    hider = Hider(10)
    hider.add("a/b<c>&'+é")
    assert hider.hide(f"x {written} y") in (f"x {HIDDEN} y", f"x {HIDDEN}\\u00e9 y")


@pytest.mark.parametrize("others", [0, 200])
@given(before=st.binary(max_size=7), secret=st.text(st.characters(min_codepoint=33, codec="utf-8"), min_size=6))
@pytest.mark.slow
def test_a_secret_in_base64_is_hidden_wherever_in_the_text_it_begins(others: int, before: bytes, secret: str) -> None:
    hider = Hider(1000)
    for number in range(others):
        hider.add(f"another secret, number {number}")
    hider.add(secret)
    raw = before + secret.encode() + b" behind"
    for written in (base64.b64encode(raw).decode(), base64.urlsafe_b64encode(raw).decode()):
        left = hider.hide(f"x {written} y")
        assert HIDDEN in left
        assert len(left.replace(HIDDEN, "")) <= len(f"x {written} y") - len(secret.encode()) * 4 // 3 + 2


@given(
    secrets=st.lists(st.text("abcZ90+/=:.- ", min_size=6, max_size=9), min_size=48, max_size=60, unique=True),
    text=st.text("abcZ90+/=:.- ", max_size=20),
    place=st.integers(0, 19),
    chosen=st.integers(0, 15),
)
@pytest.mark.slow
def test_many_secrets_are_hidden_as_one_by_one(secrets: list[str], text: str, place: int, chosen: int) -> None:
    hider = Hider(1000)
    for secret in secrets:
        hider.add(secret)
    assert secrets[chosen] not in hider.hide(text[:place] + secrets[chosen] + text[place:]).replace(HIDDEN, "\0")


def test_a_value_that_was_pushed_out_takes_its_forms_along_and_no_others() -> None:
    hider = Hider(2)
    for value in ("first secret", "second secret", "first secret", "third secret"):
        hider.add(value)
    assert hider.hide("first secret, second secret, third secret") == f"{HIDDEN}, second secret, {HIDDEN}"
    assert len(hider) == 2
    hider.add("Zmlyc3Qgc2VjcmV0")
    hider.add("first secret")  # in Base64 it is the one before
    hider.add("fourth secret")
    assert hider.hide("Zmlyc3Qgc2VjcmV0") == HIDDEN


async def test_what_an_attempt_alone_hides_pushes_no_secret_out_and_ends_with_it() -> None:
    remember("sk-live-0123456789abcdef")
    tokens = [token_urlsafe(32) for _ in range(2000)]

    async def attempt(token: str) -> tuple[str, str]:
        hide_in_attempt(token)
        return hide_secrets(f"sk-live-0123456789abcdef {token}"), hide_secrets(tokens[0])

    reports = [await asyncio.create_task(attempt(token)) for token in tokens]
    assert {own for own, _ in reports} == {f"{HIDDEN} {HIDDEN}"}
    assert {others for _, others in reports[1:]} == {tokens[0]}
    assert hide_secrets(tokens[0]) == tokens[0]


@pytest.mark.slow
def test_a_thousand_secrets_are_sought_in_one_pass() -> None:
    """A long text takes no longer beside 1,000 secrets than a few times its time beside 100: one by one it is ten."""
    text = "".join(
        random.Random(1).choices("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789", k=200_000)
    )
    few, many = Hider(1000), Hider(1000)
    for number in range(1000):
        (few if number < 100 else many).add(token_urlsafe(32))
    assert _seconds(many, text) < 5 * _seconds(few, text)


def _seconds(hider: Hider, text: str) -> float:
    taken = []
    for _ in range(5):
        begun = time.process_time()
        hider.hide(text)
        taken.append(time.process_time() - begun)
    return min(taken)
