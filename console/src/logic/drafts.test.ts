import assert from "node:assert/strict";
import test from "node:test";
import { TEMPLATE, nameOf, versionOf, withSchedule, withVersion } from "./drafts.ts";

test("a text gets another version and nothing else", () => {
  const next = withVersion("name: a\nversion: 2 # two\nsteps: []\n", 3);
  assert.equal(next, "name: a\nversion: 3 # two\nsteps: []\n");
  assert.equal(versionOf(next), 3);
  assert.equal(versionOf(withVersion("name: a\nsteps: []\n", 1)), 1);
});

test("a document in JSON gets another version and nothing else", () => {
  const source = '{\n  "hai": "flow/v1",\n  "steps": [{"version": 7, "name": "x"}],\n  "name": "a",\n  "title": "version: 9 {\\"",\n  "version": 2\n}\n';
  assert.equal(versionOf(source), 2);
  assert.equal(nameOf(source), "a");
  assert.deepEqual(JSON.parse(withVersion(source, 13)), { ...JSON.parse(source), version: 13 });
  assert.equal(withVersion(source, 13), source.replace('"version": 2', '"version": 13'));
  const without = '{"name": "a", "steps": []}';
  assert.equal(versionOf(without), null);
  assert.deepEqual(JSON.parse(withVersion(without, 4)), { name: "a", version: 4, steps: [] });
  assert.equal(versionOf("# told\n{hai: flow/v1, name: b, 'version': 5, steps: []}"), 5);
  assert.equal(nameOf("{hai: flow/v1, name: b}"), "b");
  assert.equal(versionOf("{"), null);
});

test("a document in JSON gets a schedule among its triggers", () => {
  const fires = { schedule: { cron: "0 9 * * *", timezone: "UTC" } };
  const with_ = (triggers: string): unknown => JSON.parse(withSchedule(`{"name": "a"${triggers}, "steps": []}`, "0 9 * * *", "UTC"));
  assert.deepEqual(with_(""), { name: "a", triggers: [fires], steps: [] });
  assert.deepEqual(with_(', "triggers": [ ]'), { name: "a", triggers: [fires], steps: [] });
  assert.deepEqual(with_(', "triggers": [{"event": {"type": "x"}}]'), { name: "a", triggers: [fires, { event: { type: "x" } }], steps: [] });
});

test("a schedule comes among the triggers, or before the steps", () => {
  assert.equal(
    withSchedule("name: a\ntriggers:\n  - event: {type: x}\nsteps: []\n", "0 9 * * *", "Europe/Berlin"),
    'name: a\ntriggers:\n  - schedule: {cron: "0 9 * * *", timezone: Europe/Berlin}\n  - event: {type: x}\nsteps: []\n',
  );
  assert.match(withSchedule("name: a\nsteps: []\n", "0 9 * * *", "UTC"), /^triggers:\n  - schedule: .*\nsteps:/m);
  assert.ok(!withSchedule("steps: []\n", '"}\nevil: 1', "U\nx: 1").includes("\nevil"));
});

test("the template has a name", () => {
  assert.equal(nameOf(TEMPLATE), "my_workflow");
});
