import assert from "node:assert/strict";
import test from "node:test";
import { TEMPLATE, nameOf, versionOf, withSchedule, withVersion } from "./drafts.ts";

test("a text gets another version and nothing else", () => {
  const next = withVersion("name: a\nversion: 2 # two\nsteps: []\n", 3);
  assert.equal(next, "name: a\nversion: 3 # two\nsteps: []\n");
  assert.equal(versionOf(next), 3);
  assert.equal(versionOf(withVersion("name: a\nsteps: []\n", 1)), 1);
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
