"""Tokens of issuers (JWT): who they are, what their claims mean here, and what is no token of ours."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx2
import jwt
import pytest
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from hai_flow.api.auth.config import read_identity
from hai_flow.api.auth.directory.erased_people import ErasedPeople
from hai_flow.api.auth.directory.people import People as Directory
from hai_flow.api.auth.issuers.jwt import Issuer as TrustedIssuer
from hai_flow.api.auth.issuers.jwt import Tokens
from hai_flow.errors import DefinitionError, Rejected
from hai_flow.runtime.runtime import Runtime
from hai_flow.settings import Settings
from tests.support.identities import KEYS, People, carried
from tests.support.issuers import AUDIENCE, Issuer, KeyServer, identity_file, public, serving_keys
from tests.support.postgres import Server
from tests.support.server import YAML, ServerProcess, serving

ISSUER, OTHER = Issuer(), Issuer("https://other.example.com")
CLAIMS = {"id": "sub", "roles": "realm_access.roles", "groups": "groups"}
FORGERS = {"HAI_FLOW_REFUSALS_PEER_MAX": "10000"}  # all of them have one address
MINE = """
hai: flow/v1
name: mine
version: 1
steps:
  - say: Hello.
"""


@pytest.fixture(scope="module")
def key_server() -> Iterator[KeyServer]:
    with serving_keys(OTHER) as keys:
        yield keys


@pytest.fixture(scope="module")
def strict(dsn: str, key_server: KeyServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server that believes two issuers: one by a file of its keys, the other by a server of them."""
    folder = tmp_path_factory.mktemp("identity")
    (folder / "keys.json").write_text(json.dumps(ISSUER.jwks))
    file = identity_file(
        folder,
        {
            "corp": {
                "issuer": ISSUER.url,
                "audience": AUDIENCE,
                "jwks_file": "keys.json",
                "claims": CLAIMS,
                "prefix": "corp-",
            },
            "other": {
                "issuer": OTHER.url,
                "audience": [AUDIENCE, "https://flow.example.com"],
                "jwks": key_server.url,
                "claims": {"id": "name", "roles": "roles", "tenant": "org"},
                "roles": {"hai-ops": ["operator", "boss"]},
                "prefix": "other-",
            },
        },
        {"user:ann": ["user:annie", "user:corp-ann", "user:corp-annie", "user:other-ann"]},
    )
    with serving(dsn, environment={**KEYS, **FORGERS, "HAI_FLOW_IDENTITY": str(file)}) as process:
        People(dsn).tenant("acme")
        yield process


def ask(server: ServerProcess, token: str, path: str = "/v1/runs") -> httpx2.Response:
    return httpx2.get(server.url + path, headers=carried(token), timeout=30)


def said(response: httpx2.Response) -> tuple[int, str]:
    return (response.status_code, response.json()["code"] if response.status_code >= 400 else "")


def started_by(server: ServerProcess, token: str) -> str:
    answer = httpx2.post(f"{server.url}/v1/runs", json={"workflow": "mine"}, headers=carried(token))
    assert answer.status_code == 201, answer.text
    return answer.json()["started_by"]


@pytest.mark.parametrize("kid", ["rsa", "ec", "ed"])
def test_a_token_says_who_calls_with_which_roles(strict: ServerProcess, kid: str) -> None:
    assert said(ask(strict, ISSUER.token(kid))) == (200, "")  # a requester
    assert said(ask(strict, ISSUER.token(kid), "/v1/keys")) == (403, "right_missing")
    admin = ISSUER.token(kid, realm_access={"roles": ["admin", 7, "a b", "\u0000"]})
    assert said(ask(strict, admin, "/v1/keys")) == (200, "")


def test_a_person_with_several_ids_is_one(strict: ServerProcess, dsn: str) -> None:
    publisher = People(dsn).person("user:pat", roles=["publisher"])
    assert httpx2.post(f"{strict.url}/v1/workflows", content=MINE, headers={**YAML, **publisher}).status_code == 201
    assert started_by(strict, ISSUER.token()) == "user:ann"
    assert started_by(strict, ISSUER.token(sub="annie")) == "user:ann"
    assert started_by(strict, OTHER.token(name="ann", org="default")) == "user:ann"
    assert started_by(strict, OTHER.token(name="bob", org="default")) == "user:other-bob"
    assert started_by(strict, People(dsn).key("user:annie")[1]) == "user:ann"


def test_no_token_is_in_the_database(strict: ServerProcess, dsn: str) -> None:
    publisher, token = People(dsn).person("user:pat", roles=["publisher"]), ISSUER.token()
    httpx2.post(f"{strict.url}/v1/workflows", content=MINE, headers={**YAML, **publisher}).raise_for_status()
    started_by(strict, token)
    tables = People(dsn).do(
        lambda connection: connection.fetch("SELECT tablename FROM pg_tables WHERE schemaname = current_schema()")
    )
    for (table,) in tables:
        query = f"SELECT count(*) FROM {table} t WHERE position($1 IN t::text) > 0"
        for part in (token, token.rpartition(".")[2], token.encode().hex()):
            rows = People(dsn).do(lambda connection, sql=query, part=part: connection.fetchval(sql, part))
            assert rows == 0, table


def test_an_issuers_roles_are_called_here_as_the_file_says(strict: ServerProcess) -> None:
    operator = OTHER.token(name="bob", org="acme", roles="hai-ops viewer")
    assert said(ask(strict, operator, "/v1/schedules")) == (200, "")
    assert said(ask(strict, OTHER.token(name="bob", org="acme", roles=["operator"]), "/v1/schedules"))[0] == 403


def test_a_tenant_that_has_no_row_is_nobodys(strict: ServerProcess) -> None:
    for org in ("nowhere", "", "Not A Name", 7, None, ["acme"], "\u0000"):
        assert said(ask(strict, OTHER.token(name="bob", org=org))) == (401, "auth.invalid"), org


def test_codes_say_what_the_owner_of_a_token_can_mend(strict: ServerProcess) -> None:
    assert said(ask(strict, ISSUER.token(exp=int(time.time()) - 1))) == (401, "auth.expired")
    assert said(ask(strict, ISSUER.token(aud="somebody-else"))) == (401, "auth.audience")
    challenge = ask(strict, ISSUER.token(aud="somebody-else")).headers["www-authenticate"]
    assert challenge == 'Bearer realm="hai-flow", error="invalid_token"'


@pytest.mark.parametrize("leeway", [0, 30])
@pytest.mark.parametrize(
    ("claim", "ahead", "verdict"),
    [
        ("exp", 1, "good"), ("exp", 0, "auth.expired"),
        ("nbf", 0, "good"), ("nbf", 1, "good"), ("nbf", 2, "auth.invalid"),
        ("iat", 0, "good"), ("iat", 1, "good"), ("iat", 2, "auth.invalid"),
    ],
)  # fmt: skip
async def test_a_token_holds_from_its_beginning_to_its_end_and_for_the_leeway(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, leeway: int, claim: str, ahead: int, verdict: str
) -> None:
    """`ahead`: the time of the claim, in seconds behind now; the server's clock may be one second behind."""
    file = tmp_path / "keys.json"
    file.write_text(json.dumps(ISSUER.jwks))
    trusted = TrustedIssuer(
        name="corp", issuer=ISSUER.url, audience=(AUDIENCE,), jwks_file=file, tenant_claim="org", leeway=leeway
    )
    runtime = Runtime("postgresql://", Settings(database_url="postgresql://"), performs=False)
    tokens = Tokens(runtime, ErasedPeople(runtime), [trusted], Directory(runtime))
    monkeypatch.setattr(tokens, "now_ms", lambda: NOW * 1000 + 999)
    at = NOW + ahead + (-leeway if claim == "exp" else leeway)
    claims: dict[str, Any] = {"iat": NOW - 3600, "exp": NOW + 3600, claim: at}
    token = ISSUER.token(**claims)
    try:
        await tokens.claims(token)
        found = "good"
    except Rejected as rejected:
        found = rejected.code
    assert found == verdict


def encoded(value: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()


def unsigned(header: Any, claims: Any, signature: str = "") -> str:
    return f"{encoded(header)}.{encoded(claims)}.{signature}"


def signed(header: Any, claims: Any, key: rsa.RSAPrivateKey) -> str:
    """A token as RS256 signs it, whatever it says."""
    return signed_text(f"{encoded(header)}.{encoded(claims)}", key)


def signed_text(text: str, key: rsa.RSAPrivateKey) -> str:
    signature = key.sign(text.encode(), padding.PKCS1v15(), hashes.SHA256())
    return f"{text}.{base64.urlsafe_b64encode(signature).rstrip(b'=').decode()}"


def twice(header: str = '{"alg": "RS256", "kid": "rsa"}', more: str = "", inner: str = "{}") -> str:
    """A token that its issuer signed, whose claims end with `more`."""
    claims = json.dumps(ISSUER.claims())[:-1] + f', "inner": {inner}{more}}}'
    text = ".".join(base64.urlsafe_b64encode(part.encode()).rstrip(b"=").decode() for part in (header, claims))
    return signed_text(text, ISSUER.keys["rsa"][1])


def confused(key: bytes, header: dict[str, Any]) -> str:
    """A token that is signed with a public key, as if that were a shared secret."""
    signed = f"{encoded(header)}.{encoded(ISSUER.claims())}"
    mac = hmac.new(key, signed.encode(), hashlib.sha256).digest()
    return f"{signed}.{base64.urlsafe_b64encode(mac).rstrip(b'=').decode()}"


def pem_of(kid: str) -> bytes:
    key = ISSUER.keys[kid][1].public_key()
    return key.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)


@cache
def own() -> rsa.RSAPrivateKey:
    """The attacker's key."""
    return rsa.generate_private_key(65537, 2048)


NOW = int(time.time())
FORGED: dict[str, Any] = {
    "no algorithm": lambda: unsigned({"alg": "none", "typ": "JWT"}, ISSUER.claims()),
    "no algorithm, with a signature": lambda: unsigned({"alg": "none"}, ISSUER.claims(), "AAAA"),
    "no algorithm, spelt oddly": lambda: unsigned({"alg": "nOnE"}, ISSUER.claims(), "AAAA"),
    "algorithm of no text": lambda: unsigned({"alg": ["RS256"]}, ISSUER.claims(), "AAAA"),
    "HS256 with the public key as PEM": lambda: confused(pem_of("rsa"), {"alg": "HS256", "kid": "rsa"}),
    "HS256 with the public key as JWK": lambda: confused(
        json.dumps(ISSUER.jwks["keys"][0]).encode(), {"alg": "HS256", "kid": "rsa"}
    ),
    "HS256 with nothing": lambda: confused(b"", {"alg": "HS256", "kid": "rsa"}),
    "own key under a known name": lambda: jwt.encode(ISSUER.claims(), own(), "RS256", {"kid": "rsa"}),
    "own key under a name of its own": lambda: jwt.encode(ISSUER.claims(), own(), "RS256", {"kid": "own"}),
    "own key without a name": lambda: jwt.encode(ISSUER.claims(), own(), "RS256"),
    "a name that leads to a file": lambda: jwt.encode(ISSUER.claims(), own(), "RS256", {"kid": "../../dev/null"}),
    "a name that is SQL": lambda: jwt.encode(ISSUER.claims(), own(), "RS256", {"kid": "x' UNION SELECT 'k"}),
    "a name with NUL": lambda: jwt.encode(ISSUER.claims(), own(), "RS256", {"kid": "\0000"}),
    "a name that is a URL": lambda: jwt.encode(ISSUER.claims(), own(), "RS256", {"kid": "https://evil.example/k"}),
    "a name that is a number": lambda: unsigned({"alg": "RS256", "kid": 1}, ISSUER.claims(), "AAAA"),
    "a key of another kind": lambda: ISSUER.token("ec", {"kid": "rsa"}),
    "its own key in the header": lambda: jwt.encode(
        ISSUER.claims(), own(), "RS256", {"kid": "rsa", "jwk": public("rsa", "RS256", own())}
    ),
    "an address of keys in the header": lambda: ISSUER.token(headers={"jku": "https://evil.example/keys"}),
    "an address of a certificate": lambda: ISSUER.token(headers={"x5u": "https://evil.example/cert"}),
    "a certificate in the header": lambda: ISSUER.token(headers={"x5c": ["AAAA"]}),
    "rules that are critical": lambda: ISSUER.token(headers={"crit": ["exp"]}),
    "rules that are critical, none": lambda: ISSUER.token(headers={"crit": []}),
    "a body that is not encoded": lambda: signed(
        {"alg": "RS256", "kid": "rsa", "b64": True}, ISSUER.claims(), ISSUER.keys["rsa"][1]
    ),
    "a token for logging out": lambda: ISSUER.token(headers={"typ": "logout+jwt"}),
    "a proof of possession": lambda: ISSUER.token(headers={"typ": "dpop+jwt"}),
    "keys of another issuer": lambda: OTHER.token(iss=ISSUER.url),
    "keys of another issuer, by its name": lambda: jwt.encode(
        {**ISSUER.claims(), "iss": OTHER.url}, ISSUER.keys["rsa"][1], "RS256", {"kid": "rsa"}
    ),
    "an unknown issuer": lambda: ISSUER.token(iss="https://evil.example"),
    "an issuer with a slash": lambda: ISSUER.token(iss=ISSUER.url + "/"),
    "an issuer in capitals": lambda: ISSUER.token(iss=ISSUER.url.upper()),
    "a list of issuers": lambda: unsigned({"alg": "RS256", "kid": "rsa"}, ISSUER.claims(iss=[ISSUER.url]), "AAAA"),
    "no issuer": lambda: unsigned({"alg": "RS256", "kid": "rsa"}, {"sub": "ann"}, "AAAA"),
    "no end": lambda: ISSUER.token(exp=None),
    "no audience": lambda: ISSUER.token(aud=None),
    "no subject": lambda: ISSUER.token(sub=None),
    "an end as text": lambda: ISSUER.token(exp="never"),
    "an end that is no number": lambda: ISSUER.token(exp=True),
    "an end beyond all time": lambda: ISSUER.token(exp=10**30),
    "an end of infinity": lambda: ISSUER.token(exp=float("inf")),
    "an end of no number": lambda: ISSUER.token(exp=float("nan")),
    "a negative end": lambda: ISSUER.token(exp=-1),
    "good later": lambda: ISSUER.token(nbf=NOW + 3600),
    "made later": lambda: ISSUER.token(iat=NOW + 3600),
    "nobody": lambda: ISSUER.token(sub=""),
    "a subject with a space": lambda: ISSUER.token(sub="a b"),
    "a subject with NUL": lambda: ISSUER.token(sub="a\0"),
    "a subject with a line": lambda: ISSUER.token(sub="a\r\nb"),
    "a subject too long": lambda: ISSUER.token(sub="a" * 201),
    "a subject of half a character": lambda: ISSUER.token(sub="\ud800"),
    "two parts": lambda: ISSUER.token().rpartition(".")[0],
    "four parts": lambda: ISSUER.token() + ".x",
    "no signature": lambda: ISSUER.token().rpartition(".")[0] + ".",
    "half a signature": lambda: ISSUER.token()[:-100],
    "another's claims": lambda: ".".join(
        [ISSUER.token().split(".")[0], encoded(ISSUER.claims(sub="eve")), ISSUER.token().split(".")[2]]
    ),
    "a header that is a list": lambda: unsigned([], ISSUER.claims(), "AAAA"),
    "claims that are text": lambda: unsigned({"alg": "RS256"}, "claims", "AAAA"),
    "claims too deep": lambda: encoded({"alg": "RS256"}) + "." + base64.urlsafe_b64encode(b"[" * 3000).decode() + ".A",
    "a subject twice": lambda: twice(more=', "sub": "eve"'),
    "a subject twice, once by an escape": lambda: twice(more=', "s\\u0075b": "eve"'),
    "an inner claim twice": lambda: twice(inner='{"roles": [], "roles": ["boss"]}'),
    "a name of the key twice": lambda: twice('{"alg": "RS256", "kid": "other", "kid": "rsa"}'),
    "a padded signature": lambda: ISSUER.token() + "==",
    "a padded header": lambda: ISSUER.token().replace(".", "=.", 1),
    "no base64": lambda: "e!J.e!J.AAAA",
    "spaces inside": lambda: ISSUER.token().replace(".", " .", 1),
}


@pytest.mark.parametrize("kind", FORGED)
def test_a_forged_token_is_refused_and_told_nothing(strict: ServerProcess, kind: str) -> None:
    assert said(ask(strict, FORGED[kind]())) == (401, "auth.invalid")


def test_a_token_that_names_each_claim_once_is_taken(strict: ServerProcess) -> None:
    assert ask(strict, twice(inner='{"sub": "eve"}')).status_code == 200


def test_refusals_of_forged_tokens_are_the_same_to_the_byte(strict: ServerProcess) -> None:
    kinds = ("own key under a known name", "an unknown issuer", "keys of another issuer", "no algorithm")
    assert len({ask(strict, FORGED[kind]()).content for kind in kinds}) == 1


# --- the keys of an issuer ----------------------------------------------------------------------------------------


@pytest.fixture
def rotating(postgres_server: Server, tmp_path: Path) -> Iterator[tuple[ServerProcess, KeyServer, Issuer]]:
    issuer = Issuer("https://rotating.example.com")
    with serving_keys(issuer) as keys, postgres_server.database() as dsn:
        file = identity_file(
            tmp_path, {"corp": {"issuer": issuer.url, "audience": AUDIENCE, "jwks": keys.url, "claims": CLAIMS}}
        )
        with serving(dsn, environment={**KEYS, **FORGERS, "HAI_FLOW_IDENTITY": str(file)}) as process:
            yield process, keys, issuer


def test_a_new_key_is_found_and_made_up_names_ask_no_one(rotating: tuple[ServerProcess, KeyServer, Issuer]) -> None:
    server, keys, issuer = rotating
    keys.hangs = True
    with ThreadPoolExecutor(8) as pool:  # all who come first wait for one look
        waiting = [pool.submit(ask, server, issuer.token(kid)) for kid in ("rsa", "ec", "ed", "rsa")]
        while not keys.asked:
            time.sleep(0.01)
        keys.hangs = False
        keys.released.set()
        assert [said(each.result()) for each in waiting] == [(200, "")] * 4
    assert keys.asked == 1
    for number in range(20):
        forged = jwt.encode(issuer.claims(), own(), "RS256", {"kid": f"made-up-{number}"})
        assert said(ask(server, forged)) == (401, "auth.invalid")
    assert keys.asked <= 2


def test_a_server_of_keys_that_hangs_delays_nobody_whose_key_is_known(
    rotating: tuple[ServerProcess, KeyServer, Issuer],
) -> None:
    server, keys, issuer = rotating
    forged = jwt.encode(issuer.claims(), own(), "RS256", {"kid": "made-up"})
    keys.hangs = True
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(ask, server, forged)
        while not keys.asked:
            time.sleep(0.01)
        assert httpx2.get(f"{server.url}/readyz").status_code == 200
        assert said(ask(server, "hai_000000000000_" + "A" * 43)) == (401, "auth.invalid")
        assert not waiting.done()
        keys.hangs = False
        keys.released.set()
        assert said(waiting.result()) == (401, "auth.invalid")
    assert said(ask(server, issuer.token())) == (200, "")
    keys.hangs = True
    keys.released.clear()
    assert said(ask(server, issuer.token())) == (200, "")


@pytest.mark.parametrize(
    "answer", [b"", b"{}", b'{"keys": 1}', b"[" * 5000, b"x" * 300_000, b'{"keys": [{"kty": "oct", "k": "AAAA"}]}']
)
def test_keys_that_can_not_be_had_are_no_keys(rotating: tuple[ServerProcess, KeyServer, Issuer], answer: bytes) -> None:
    server, keys, issuer = rotating
    keys.broken = answer
    none = b"oct" in answer  # a sound answer, in which there is no key that we take
    assert said(ask(server, issuer.token())) == ((401, "auth.invalid") if none else (503, "auth.unavailable"))


def test_a_person_by_the_name_of_everybody_is_nobody(rotating: tuple[ServerProcess, KeyServer, Issuer]) -> None:
    server, _, issuer = rotating
    assert said(ask(server, issuer.token(sub="locale"))) == (200, "")
    refused = ask(server, issuer.token(sub="local"))
    assert said(refused) == (401, "auth.invalid")
    assert "`user:local` stands for everybody" in refused.json()["detail"]


def test_weak_shared_and_foreign_keys_are_not_taken(rotating: tuple[ServerProcess, KeyServer, Issuer]) -> None:
    server, keys, issuer = rotating
    short = rsa.generate_private_key(65537, 1024)
    offered = [
        public("weak", "RS256", short),
        {**public("encrypts", "RS256", own()), "use": "enc"},
        {**public("signs", "RS256", own()), "key_ops": ["sign"]},
        {**public("other", "RS256", own()), "alg": "RS512"},
        {"kty": "oct", "kid": "shared", "k": base64.urlsafe_b64encode(b"k" * 32).decode()},
    ]
    keys.broken = json.dumps({"keys": offered}).encode()
    for kid, key, algorithm in (
        ("weak", short, "RS256"),
        ("encrypts", own(), "RS256"),
        ("signs", own(), "RS256"),
        ("other", own(), "RS256"),
        ("shared", b"k" * 32, "HS256"),
    ):
        header = {"alg": algorithm, "kid": kid}
        whole = isinstance(key, bytes)
        token = jwt.encode(issuer.claims(), key, algorithm, header) if whole else signed(header, issuer.claims(), key)
        assert said(ask(server, token)) == (401, "auth.invalid"), kid


# --- the identity file --------------------------------------------------------------------------------------------

SOUND = {"issuer": "https://a.example", "audience": "hai-flow", "jwks": "https://a.example/keys"}


def test_a_sound_file_is_read(tmp_path: Path) -> None:
    (issuer,), people = read_identity(identity_file(tmp_path, {"a": SOUND}, {"user:ann": ["user:annie"]}))
    assert (issuer.issuer, issuer.id_claim, issuer.tenant) == ("https://a.example", "sub", "default")
    assert people == {"default": {"user:annie": "user:ann"}}


@pytest.mark.parametrize(
    ("issuers", "people", "expected"),
    [
        ({"a": {**SOUND, "tenant": "acme"}}, {"user:ann": ["user:x"]}, {"acme": {"user:x": "user:ann"}}),
        ({"a": {**SOUND, "claims": {"tenant": "org"}}}, {"user:ann": ["user:x"]}, {"default": {"user:x": "user:ann"}}),
        (
            {"a": {**SOUND, "tenant": "acme"}, "b": {**SOUND, "issuer": "https://b.example", "tenant": "globex"}},
            {"user:ann": ["user:x"]},
            {"default": {"user:x": "user:ann"}},
        ),
        (
            {"a": SOUND},
            {"acme": {"user:ann": ["user:x"]}, "globex": {"user:bob": ["user:x"]}},
            {"acme": {"user:x": "user:ann"}, "globex": {"user:x": "user:bob"}},
        ),
    ],
    ids=["the tenant of all issuers", "tokens that name theirs", "issuers of two tenants", "by tenant"],
)
def test_people_are_of_one_tenant(
    tmp_path: Path, issuers: dict[str, Any], people: dict[str, Any], expected: dict[str, dict[str, str]]
) -> None:
    assert read_identity(identity_file(tmp_path, issuers, people))[1] == expected


@pytest.mark.parametrize(
    ("issuers", "people", "code"),
    [
        ({"a": {**SOUND, "algorithms": ["HS256"]}}, None, "shape"),
        ({"a": {**SOUND, "algorithms": ["none"]}}, None, "shape"),
        ({"a": {**SOUND, "jwks": "http://a.example/keys"}}, None, "issuer.jwks"),
        ({"a": {**SOUND, "jwks": "file:///etc/passwd"}}, None, "issuer.jwks"),
        ({"a": {**SOUND, "jwks_file": "keys.json"}}, None, "issuer.keys"),
        ({"a": {"issuer": "https://a.example", "audience": "x"}}, None, "issuer.keys"),
        ({"a": {**SOUND, "tenant": "acme", "claims": {"tenant": "org"}}}, None, "issuer.tenant"),
        ({"a": {**SOUND, "tenant": "Not A Name"}}, None, "issuer.tenant"),
        ({"a": {**SOUND, "leeway": "1h"}}, None, "issuer.leeway"),
        ({"a": SOUND, "b": {**SOUND, "prefix": "b-"}}, None, "issuer.twice"),
        ({"a": SOUND, "b": {**SOUND, "issuer": "https://b.example"}}, None, "issuer.prefix"),
        ({"a": {**SOUND, "audiance": "x"}}, None, "shape.unknown_key"),
        ({"a": SOUND}, {"user:ann": ["ann"]}, "people.id"),
        ({"a": SOUND}, {"user:local": ["user:ann"]}, "people.id"),
        ({"a": SOUND}, {"user:ann": ["user:x"], "user:bob": ["user:x"]}, "people.twice"),
        ({"a": SOUND}, {"user:ann": ["user:bob"], "user:bob": ["user:c"]}, "people.twice"),
        ({"a": SOUND}, {"acme": {"user:ann": ["ann"]}}, "people.id"),
        ({"a": SOUND}, {"Not A Name": {"user:ann": ["user:x"]}}, "people.tenant"),
        ({"a": SOUND}, {"default": {"user:ann": ["user:x"]}, "user:bob": ["user:y"]}, "people.twice"),
    ],
)
def test_a_file_with_a_mistake_is_refused(
    tmp_path: Path, issuers: dict[str, dict[str, Any]], people: dict[str, Any] | None, code: str
) -> None:
    with pytest.raises(DefinitionError) as refused:
        read_identity(identity_file(tmp_path, issuers, people))
    assert any(finding.code.startswith(code) for finding in refused.value.findings), refused.value


def test_issuers_of_different_tenants_need_no_prefix(tmp_path: Path) -> None:
    apart = {"a": SOUND, "b": {**SOUND, "issuer": "https://b.example", "tenant": "acme"}}
    issuers, _ = read_identity(identity_file(tmp_path, apart))
    assert len(issuers) == 2


def test_a_token_bound_to_a_certificate_is_taken_from_its_holder_alone(dsn: str, tmp_path: Path) -> None:
    (tmp_path / "keys.json").write_text(json.dumps(ISSUER.jwks))
    corp = {"issuer": ISSUER.url, "audience": AUDIENCE, "jwks_file": "keys.json", "claims": CLAIMS, "prefix": "corp-"}
    file = identity_file(tmp_path, {"corp": corp})
    environment = {**KEYS, "HAI_FLOW_IDENTITY": str(file), "HAI_FLOW_CLIENT_CERTIFICATE": "Client-Cert"}
    mine, other = base64.b64encode(b"a certificate").decode(), base64.b64encode(b"another one").decode()
    thumbprint = base64.urlsafe_b64encode(hashlib.sha256(b"a certificate").digest()).rstrip(b"=").decode()
    pem = quote(f"-----BEGIN CERTIFICATE-----\n{mine}\n-----END CERTIFICATE-----\n")
    with serving(dsn, environment=environment) as server:
        listing = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}

        def call(token: str, *certificates: str) -> int:
            """The status of a call at `/mcp`."""
            headers = [*carried(token).items(), ("Accept", "application/json, text/event-stream")]
            headers += [("Client-Cert", each) for each in certificates]
            return httpx2.post(f"{server.url}/mcp", json=listing, headers=headers, timeout=30).status_code

        here = f"{server.url}/mcp"
        bound = ISSUER.token(aud=here, cnf={"x5t#S256": thumbprint})
        assert [call(bound, f":{mine}:"), call(bound, pem)] == [200, 200]
        assert [call(bound), call(bound, f":{other}:"), call(bound, "no certificate"), call(bound, mine, mine)] == [
            401, 401, 401, 400
        ]  # fmt: skip
        for cnf in (None, {}, {"jkt": thumbprint}, {"x5t#S256": thumbprint, "jkt": "x"}, {"x5t#S256": None}, "x"):
            assert call(ISSUER.token(aud=here, cnf=cnf), mine) == 401, cnf
        key = People(dsn).person("user:kim", roles=["viewer"])["Authorization"].removeprefix("Bearer ")
        assert call(key, mine) == 401
        assert said(ask(server, key)) == (200, "")
        assert said(ask(server, ISSUER.token())) == (200, "")
        assert said(ask(server, ISSUER.token(cnf={"x5t#S256": thumbprint}))) == (401, "auth.invalid")


def test_a_bound_token_is_no_bearer_token_without_its_certificate(strict: ServerProcess) -> None:
    assert said(ask(strict, ISSUER.token(cnf={"x5t#S256": "x"}))) == (401, "auth.invalid")
    assert said(ask(strict, ISSUER.token(cnf={"jkt": "x"}))) == (401, "auth.invalid")
