import assert from "node:assert/strict";
import test from "node:test";
import type { AuditLink } from "../api/types.gen.ts";
import { ChainVerifier, toHex } from "./chain.ts";

// Written by the server's own code: three records, of which the last one's details were erased.
const LINKS: string[] = [
  '{"tenant":"00000000-0000-0000-0000-000000000007","n":1,"id":"00000000-0000-0000-0000-000000000065","hash":"863189e28eff652c2bd1e5f2801fc205749ff72eb33de0b01aefceaa4683a99f","record":{"tenant":"00000000-0000-0000-0000-000000000007","id":"00000000-0000-0000-0000-000000000065","at":1790000000000001,"act":"pending.decided","run_id":"00000000-0000-0000-0000-000000000009","seq":5,"head":"0101010101010101010101010101010101010101010101010101010101010101","subject":"pending:p","digest":"0202020202020202020202020202020202020202020202020202020202020202","commitment":"f4d3feb7bb7d28c1b264829327793416fed61b4ff7026f1101fb597537b5191f"},"details":{"principal":"user:ann","salt":"000102030405060708090a0b0c0d0e0f","body":"{\\"way\\":\\"rest\\",\\"text\\":\\"好\\"}","erased_at":null}}',
  '{"tenant":"00000000-0000-0000-0000-000000000007","n":2,"id":"00000000-0000-0000-0000-000000000066","hash":"20f1b06c27d8c36c1725f3897c5679939aa2a9de55651e834ec2dcbc32cacf8a","record":{"tenant":"00000000-0000-0000-0000-000000000007","id":"00000000-0000-0000-0000-000000000066","at":1790000000000002,"act":"pending.decided","run_id":null,"seq":null,"head":null,"subject":null,"digest":null,"commitment":"716c6c0511926c0ff89f833b437ec6ca546b851751fe035dd398cd1851f4420d"},"details":{"principal":"user:bob","salt":"00000000000000000000000000000000","body":"{}","erased_at":null}}',
  '{"tenant":"00000000-0000-0000-0000-000000000007","n":3,"id":"00000000-0000-0000-0000-000000000067","hash":"462f4a4bdc11f6205ee131006a756517ef4a10bcf865d1df309efb8efd48e614","record":{"tenant":"00000000-0000-0000-0000-000000000007","id":"00000000-0000-0000-0000-000000000067","at":1790000000000003,"act":"pending.decided","run_id":null,"seq":null,"head":null,"subject":"pending:p","digest":null,"commitment":"716c6c0511926c0ff89f833b437ec6ca546b851751fe035dd398cd1851f4420d"},"details":{"principal":"erased:1","salt":"00000000000000000000000000000000","body":"{}","erased_at":1700000000000001}}',
];

const links = (): AuditLink[] => LINKS.map((each) => JSON.parse(each) as AuditLink);

async function checked(given: AuditLink[]): Promise<ChainVerifier> {
  const verifier = await ChainVerifier.of("00000000-0000-0000-0000-000000000007");
  for (const each of given) await verifier.check(each);
  return verifier;
}

test("a chain that nobody has changed is whole, and ends where the server says", async () => {
  const verifier = await checked(links());
  assert.deepEqual(verifier.faults, []);
  assert.equal(verifier.erased, 1);
  assert.equal(toHex(verifier.hash), links()[2]?.hash);
});

test("a record that was changed, gone or given other details is found where it is", async () => {
  const [first, second, third] = links() as [AuditLink, AuditLink, AuditLink];
  assert.deepEqual((await checked([first, { ...second, record: { ...second.record, act: "x" } }, third])).faults, [
    { n: 2, kind: "changed" },
  ]);
  assert.deepEqual((await checked([first, third])).faults, [{ n: 2, kind: "removed" }]);
  assert.deepEqual((await checked([{ ...first, details: { ...first.details, principal: "user:eve" } }, second, third])).faults, [
    { n: 1, kind: "details" },
  ]);
  assert.deepEqual((await checked([first, second, second])).faults, [{ n: 3, kind: "order" }]);
});
