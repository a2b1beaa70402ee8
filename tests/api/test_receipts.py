"""Receipts of decisions: what stands in them, who is told what, and that none holds that was changed."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import httpx2
import mcp_types as types
import pytest
from hai_flow_client import Client
from hypothesis import given, settings
from hypothesis import strategies as st

from clients.receipts.verify_receipt import verify as verify_outside
from hai_flow import signing
from hai_flow.api.mcp import answer_signature
from hai_flow.api.mcp.answer_signature import SIGNATURE, digest_answer
from hai_flow.runtime.people.receipts import make_key
from hai_flow.wire.receipt import UnprovenReceipt, check_payload, read_texts
from tests.clients import rig
from tests.support import commands
from tests.support.examples import examples
from tests.support.hai_client import unique
from tests.support.identities import KEYS, People
from tests.support.mcp_caller import NOTHING, WITH_TASKS, Caller
from tests.support.postgres import Server, execute
from tests.support.server import YAML, ServerProcess, expect, serving
from tests.support.waiting import wait_for

ROOT = Path(__file__).parents[2]
RUNS = int(os.environ.get("HAI_FLOW_TEST_RECEIPTS", "30"))
SOURCE = """
hai: flow/v1
name: NAME
version: 1
input:
  type: object
  properties:
    order: {type: string, default: A-1}
    amount: {type: number, default: 180}
    iban: {type: string, default: DE-4711, pii: true}
tools: {shop: {python: hai_flow.examples, effect: external}}
steps:
  - id: pay
    call: shop.refund
    with: {order: "${{ input.order }} to ${{ input.iban }}", amount: "${{ input.amount }}"}
    approval: {title: "Pay ${{ args.amount }}?", from: [role:boss], edit: [amount], QUORUM deadline: DEADLINE}
    on_reject: [{return: null}]
"""


class House(NamedTuple):
    """A server with identity and receipts, its callers, and the file of its keys."""

    server: ServerProcess
    people: People
    keys: Path

    def call(self, who: str, method: str, path: str, **more: Any) -> httpx2.Response:
        roles = {
            "req": [],
            "ann": ["decider", "boss"],
            "bob": ["decider", "boss"],
            "vic": ["viewer"],
            "pat": ["publisher"],
        }
        headers = {**self.people.person(f"user:{who}", roles=roles[who]), **more.pop("headers", {})}
        return httpx2.request(method, f"{self.server.url}{path}", headers=headers, timeout=30, **more)

    def asked(self, *, quorum: int = 1, deadline: str = "1h", **given: Any) -> str:
        """The id of the question of a new run of user:req's."""
        name = unique("receipt").replace("-", "_")
        source = SOURCE.replace("NAME", name).replace("DEADLINE", deadline)
        source = source.replace("QUORUM", "" if quorum == 1 else f"quorum: {quorum},")
        expect(self.call("pat", "POST", "/v1/workflows", content=source, headers=YAML), 201)
        run = self.call("req", "POST", "/v1/runs", json={"workflow": name, "input": given}).json()
        page = wait_for(lambda: self.call("req", "GET", f"/v1/runs/{run['id']}/snapshot").json()["pendings"])
        return page[0]["id"]

    def decide(self, who: str, id: str, decision: str, **more: Any) -> None:
        expect(self.call(who, "POST", f"/v1/pendings/{id}/decide", json={"decision": decision, **more}), 200)

    def receipt(self, id: str, who: str = "ann") -> str:
        """The receipt, once there is one."""

        def look() -> str | None:
            answer = self.call(who, "GET", f"/v1/pendings/{id}/receipt")
            assert answer.status_code == 200 or answer.json()["code"] == "receipt_early", answer.text
            return answer.text if answer.status_code == 200 else None

        return wait_for(look)

    @property
    def jwks(self) -> str:
        """The public keys."""
        return httpx2.get(f"{self.server.url}/.well-known/jwks.json").text


def texts(receipt: str) -> set[str]:
    return {each["text"] for each in json.loads(receipt)["texts"].values()}


def verify_inside(receipt: bytes, keys: tuple[signing.Key, ...]) -> dict[str, Any]:
    """The content, as `hai-flow receipt verify` finds it."""
    token, told = read_texts(receipt.decode())
    return check_payload(signing.verify(token, keys), told)


@pytest.fixture(scope="module")
def house(postgres_server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    keys = tmp_path_factory.mktemp("receipts") / "keys.json"
    make_key(keys)
    environment = {**KEYS, "HAI_FLOW_RECEIPT_KEYS": str(keys)}
    with postgres_server.database() as dsn, serving(dsn, environment=environment) as server:
        yield House(server, People(dsn), keys)


@pytest.fixture(scope="module")
def edited(house: House) -> str:
    """The receipt of a decision that changed the arguments."""
    id = house.asked()
    house.decide("ann", id, "approve", edits={"amount": 90}, reason="half is enough")
    return house.receipt(id)


def test_a_receipt_says_what_was_asked_decided_and_done(house: House, edited: str) -> None:
    content = verify_outside(edited, house.jwks)
    assert content["decision"]["outcome"] == "approve"
    assert content["question"]["arguments"] != content["decision"]["arguments"] == content["edits"][0]["arguments"]
    (done,) = content["executed"]
    assert (done["outcome"], done["arguments"]) == ("finished", content["decision"]["arguments"])
    assert content["votes"][0]["by"] == content["decision"]["by"] != content["requester"]
    assert content["audit"]["n"] > 0
    assert content["question"]["effect"] == "external"
    assert {"user:ann", "half is enough", '{"amount":90,"order":"A-1 to DE-4711"}'} <= texts(edited)


def test_a_receipt_is_the_same_however_often_it_is_asked_for(house: House, edited: str) -> None:
    id = verify_outside(edited, house.jwks)["question"]["id"]
    assert {house.receipt(id) for _ in range(3)} == {edited}


def test_the_python_client_gets_the_same_bytes(house: House, edited: str) -> None:
    id = verify_outside(edited, house.jwks)["question"]["id"]
    _, key = house.people.key("user:ann", roles=["decider", "boss"])
    with Client(house.server.url, key=key) as flow:
        assert flow.pendings.receipt(id).decode() == edited


def test_the_verifiers_agree_without_anything_of_ours(house: House, edited: str, tmp_path: Path) -> None:
    good, bad, keys = tmp_path / "good.json", tmp_path / "bad.json", tmp_path / "keys.json"
    good.write_text(edited)
    bad.write_text(edited.replace(r"\"amount\":90", r"\"amount\":900"))
    keys.write_text(house.jwks)
    outside = ROOT / "clients" / "receipts"
    python, node = (
        [sys.executable, "-I", str(outside / "verify_receipt.py")],
        [rig.node(), str(outside / "verify_receipt.ts")],
    )
    verifiers: tuple[Callable[[Path], subprocess.CompletedProcess[str]], ...] = (
        lambda receipt: subprocess.run([*python, receipt, keys], capture_output=True, text=True),
        lambda receipt: subprocess.run([*node, receipt, keys], capture_output=True, text=True),
        lambda receipt: commands.run("receipt", "verify", str(receipt), "--key", str(keys)),
    )
    for verify in verifiers:
        said = verify(good)
        assert said.returncode == 0, said.stderr
        said = verify(bad)
        assert said.returncode != 0
        assert "the texts" in (said.stdout + said.stderr).lower()


def holds_in_typescript(texts: list[str], jwks: str, folder: Path) -> list[bool]:
    """Whether the verifier in TypeScript, which one process loads once, accepts each of the texts."""
    (folder / "texts.json").write_text(json.dumps([texts, jwks]))
    program = """
    const { verify } = await import(process.argv[2]);
    const [texts, keys] = JSON.parse((await import("node:fs")).readFileSync(process.argv[1], "utf8"));
    const holds = await Promise.all(texts.map((text) => verify(text, keys).then(() => true, () => false)));
    console.log(JSON.stringify(holds));
    """
    verifier = (ROOT / "clients" / "receipts" / "verify_receipt.ts").as_uri()
    command = [rig.node(), "--input-type=module", "-e", program, str(folder / "texts.json"), verifier]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    holds: list[bool] = json.loads(done.stdout)
    return holds


def test_each_single_byte_that_is_changed_is_found(house: House, edited: str, tmp_path: Path) -> None:
    jwks, chance, before = house.jwks, random.Random(7), edited.encode()
    known, texts = signing.keys_of(jwks, "keys"), [edited]
    for _ in range(500):
        changed = bytearray(before)
        changed[chance.randrange(len(before))] ^= 1 << chance.randrange(8)
        if bytes(changed).strip(b"\n") == before:
            continue
        with pytest.raises((ValueError, KeyError, TypeError, AttributeError)):
            verify_outside(changed.decode(), jwks)
        with pytest.raises((UnprovenReceipt, signing.NotVerified, UnicodeDecodeError)):
            verify_inside(bytes(changed), known)
        with contextlib.suppress(UnicodeDecodeError):
            texts.append(changed.decode())
    assert holds_in_typescript(texts, jwks, tmp_path) == [True] + [False] * (len(texts) - 1)


def test_there_is_no_receipt_before_the_end(house: House) -> None:
    id = house.asked(quorum=2)
    house.decide("ann", id, "approve")
    answer = house.call("ann", "GET", f"/v1/pendings/{id}/receipt")
    assert (answer.status_code, answer.json()["code"]) == (409, "receipt_early")
    assert house.call("ann", "GET", f"/v1/pendings/{id[:-1]}/receipt").status_code == 404
    house.decide("bob", id, "approve")
    votes = verify_outside(house.receipt(id), house.jwks)["votes"]
    assert len({vote["by"]["sha256"] for vote in votes}) == 2


def test_what_was_refused_was_not_done(house: House) -> None:
    id = house.asked()
    house.decide("bob", id, "reject", reason="no")
    content = verify_outside(house.receipt(id), house.jwks)
    assert (content["decision"]["outcome"], content["executed"]) == ("reject", [])


def test_what_nobody_decided_in_time_has_no_vote_and_was_not_done(house: House) -> None:
    id = house.asked(deadline="1s")
    content = verify_outside(house.receipt(id), house.jwks)
    assert (content["decision"]["outcome"], content["votes"], content["executed"]) == ("expired", [], [])
    assert content["audit"] is None


def test_personal_values_reach_their_readers_and_the_signed_part_is_one(house: House, edited: str) -> None:
    id = verify_outside(edited, house.jwks)["question"]["id"]
    for_viewer = house.receipt(id, "vic")
    assert json.loads(for_viewer)["receipt"] == json.loads(edited)["receipt"]
    assert not any("DE-4711" in text for text in texts(for_viewer))
    assert verify_outside(for_viewer, house.jwks) == verify_outside(edited, house.jwks)
    signed = base64.urlsafe_b64decode(json.loads(edited)["receipt"].split(".")[1] + "==")
    assert b"DE-4711" not in signed
    assert b"user:ann" not in signed


def test_a_stranger_finds_neither_question_nor_receipt(house: House, edited: str) -> None:
    id = verify_outside(edited, house.jwks)["question"]["id"]
    stranger = house.people.person("user:eve", roles=["requester"])
    answer = httpx2.get(f"{house.server.url}/v1/pendings/{id}/receipt", headers=stranger)
    assert (answer.status_code, answer.json()["code"]) == (404, "pending_unknown")


@pytest.mark.costly
def test_random_decisions_are_proven_by_their_receipts(house: House, tmp_path: Path) -> None:
    chance, receipts = random.Random(11), list[str]()
    for _ in range(RUNS):
        amount, outcome = chance.randrange(1, 10**6), chance.choice(["approve", "edit", "reject"])
        id = house.asked(amount=amount)
        edits = {"edits": {"amount": chance.randrange(1, 10**6)}} if outcome == "edit" else {}
        house.decide(chance.choice(["ann", "bob"]), id, "reject" if outcome == "reject" else "approve", **edits)
        receipts.append(house.receipt(id))
        content = verify_outside(receipts[-1], house.jwks)
        assert bool(content["executed"]) == (outcome != "reject")
        assert all(each["arguments"] == content["decision"]["arguments"] for each in content["executed"])
    assert holds_in_typescript(receipts, house.jwks, tmp_path) == [True] * RUNS


def test_a_new_key_signs_at_once_and_old_receipts_hold(house: House, edited: str) -> None:
    before = signing.keys_of(house.jwks, "keys")
    made = make_key(house.keys)
    after = wait_for(lambda: house.jwks if made.id in house.jwks else None)
    assert verify_outside(edited, after)
    assert [key.retired for key in signing.keys_of(after, "keys")] == [False, *[True] * len(before)]
    assert [key.private for key in signing.keys_of(house.keys.read_text(), "keys")][1:] == [None] * len(before)
    id = verify_outside(edited, after)["question"]["id"]
    with pytest.raises(ValueError, match=f"the key: {made.id} is none of {before[0].id}"):
        verify_outside(house.receipt(id), json.dumps({"keys": [key.jwk() for key in before]}))


def test_a_receipt_is_the_same_after_kills_forget_archive_prune_restore(
    postgres_server: Server, tmp_path: Path
) -> None:
    keys, policy = tmp_path / "keys.json", tmp_path / "retention.yaml"
    make_key(keys)
    policy.write_text(f"hai: retention/v1\narchive: {tmp_path / 'archive'}\nremove: 1d\n")
    with postgres_server.database() as dsn:
        environment = {**KEYS, "HAI_FLOW_RECEIPT_KEYS": str(keys), "HAI_FLOW_RETENTION": str(policy)}

        def command(*words: str) -> str:
            done = commands.run(*words, **environment, HAI_FLOW_DATABASE_URL=dsn)
            assert done.returncode == 0, done.stdout + done.stderr
            return done.stdout

        with serving(dsn, environment=environment) as server:
            home = House(server, People(dsn), keys)
            id = home.asked()
            home.decide("ann", id, "approve", edits={"amount": 7})
            server.kill()  # between the vote and, perhaps, the effect
        with serving(dsn, environment=environment) as server:
            home = House(server, People(dsn), keys)
            before = home.receipt(id)
            jwks = home.jwks
            server.kill()
        (done,) = verify_outside(before, jwks)["executed"][-1:]
        assert done["outcome"] == "finished"
        long_ago = "UPDATE runs SET ended_at = now() - interval '100 days' WHERE ended_at IS NOT NULL"
        asyncio.run(execute(dsn, long_ago))
        assert json.loads(command("prune", "--json", "--rest", "0"))["removed"] == 1
        (place,) = json.loads(command("restore", "--json"))["archives"]
        command("restore", place)
        command("forget", "user:ann", "--yes")
        with serving(dsn, environment=environment) as server:
            home = House(server, People(dsn), keys)
            assert home.receipt(id, "bob") == before
        assert verify_outside(before, jwks)
        command("audit", "verify", "--logs")


def test_without_a_key_nothing_is_signed(postgres_server: Server) -> None:
    with postgres_server.database() as dsn, serving(dsn, environment={**KEYS, "HAI_FLOW_DATABASE_URL": dsn}) as server:
        bare = House(server, People(dsn), Path())
        id = bare.asked()
        bare.decide("ann", id, "reject", reason="no")
        answer = bare.call("ann", "GET", f"/v1/pendings/{id}/receipt")
        assert (answer.status_code, answer.json()["code"]) == (409, "receipt_keys_unset")
        assert json.loads(bare.jwks) == {"keys": []}


@settings(max_examples=examples(200))
@given(st.binary(min_size=32, max_size=32), st.binary(max_size=200))
def test_what_one_key_signed_no_other_verifies(private: bytes, payload: bytes) -> None:
    key, other = signing.Key.made(private), signing.Key.made(bytes(32) if private != bytes(32) else bytes([1] * 32))
    token = signing.SigningKeys((key,)).sign(payload)
    assert signing.verify(token, (other, key)) == payload
    with pytest.raises(signing.NotVerified, match="the key"):
        signing.verify(token, (other,))
    named = signing.Key(key.id, other.public)
    with pytest.raises(signing.NotVerified, match="the signature"):
        signing.verify(token, (named,))


JWK, OTHER_JWK = (signing.Key.made(bytes([n]) * 32).jwk(private=True) for n in (1, 2))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (json.dumps({**JWK, "x": OTHER_JWK["x"]}), "do not belong together"),
        (json.dumps({**JWK, "kid": OTHER_JWK["kid"]}), "to be its thumbprint"),
        (json.dumps({"keys": [JWK, OTHER_JWK, JWK]}), "each key once"),
        ("{", "expected a JWK Set in JSON"),
        ("[]", "expected {"),
        ('{"keys": []}', "at least one key"),
        ('{"keys": [{"kty": "RSA"}]}', "kty OKP"),
        ('{"keys": [{"kty": "OKP", "crv": "Ed25519", "x": "AAAA"}]}', "32 bytes"),
    ],
)
def test_a_file_of_keys_that_is_wrong_is_refused_by_its_reason(text: str, reason: str) -> None:
    with pytest.raises(signing.BadKeys, match=reason):
        signing.keys_of(text, "keys.json")


@pytest.mark.parametrize("capabilities", [NOTHING, WITH_TASKS])
def test_what_a_tool_answers_at_mcp_is_signed_with_a_nonce_and_a_time(
    house: House, capabilities: dict[str, Any]
) -> None:
    house.asked()
    headers, keys = house.people.person("user:mo", roles=[]), signing.keys_of(house.jwks, "keys")
    with httpx2.Client(base_url=house.server.url, timeout=30) as http:
        caller = Caller(http, capabilities, **headers)
        call = {"name": "list_pending", "arguments": {"limit": 2}}
        first, second = caller.result("tools/call", call), caller.result("tools/call", call)
        wrong = caller.result("tools/call", {"name": "list_pending", "arguments": {"limit": "many"}})
        request = caller.message()["id"]
        names = [each["name"] for each in caller.result("tools/list", {})["tools"]]
        run = caller.result("tools/call", {"name": next(each for each in names if each.startswith("receipt"))})
    answers = (first, second, wrong, run)
    signed = [json.loads(signing.verify(each["_meta"][SIGNATURE], keys, signing.ANSWER_TYPE)) for each in answers]
    assert [each["answer"] for each in signed] == [digest_answer(each) for each in answers]
    assert len({each["nonce"] for each in signed}) == 4
    assert abs(time.time() * 1000 - signed[2]["at"]) < 60_000
    assert (signed[2]["tool"], signed[2]["request"]) == ("list_pending", str(request))
    assert signed[0]["arguments"] == signed[1]["arguments"] != signed[2]["arguments"]
    assert digest_answer({**first, "isError": True}) != signed[0]["answer"]
    with pytest.raises(signing.NotVerified, match="the header"):
        signing.verify(first["_meta"][SIGNATURE], keys)  # which passes for no receipt


async def test_a_large_answer_is_signed_beside_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[int] = []
    monkeypatch.setattr(answer_signature, "_sign", lambda *_: threads.append(threading.get_ident()) or "signature")
    committer, keys = SimpleNamespace(now_ms=lambda: 0), SimpleNamespace(find=object)
    access: Any = SimpleNamespace(runtime=SimpleNamespace(receipt_keys=keys, committer=committer))
    call = types.CallToolRequestParams(name="pay", arguments={"words": "a" * 1_000_000})
    signed = await answer_signature.sign_answer(access, 1, call, {"content": []})
    assert signed["_meta"] == {SIGNATURE: "signature"}
    assert threads != [threading.get_ident()]
