"""The pages of AG-UI's dojo, as the real `@ag-ui/client` sees the workflows in `workflows/dojo`.

Each test does what the page does: what it posts, which tools it has, what it reads. Every test says which page it is.
"""

from __future__ import annotations

import json

import httpx2
import pytest

from tests.clients.ag_ui import VERSIONS, WITH_INTERRUPTS, Seen, resolved, tool, user
from tests.clients.conftest import NewAgent
from tests.clients.runs import decisions, log_of, performed, run_of, runs_of

pytestmark = pytest.mark.timeout(600)  # the first test waits for the packages

# The two oldest can't apply a STATE_DELTA in Node: what they import for it is none of Node's modules.
with_state = pytest.mark.parametrize("version", WITH_INTERRUPTS)
every_version = pytest.mark.parametrize("version", VERSIONS)


# --- tool-based generative UI -------------------------------------------------------------------------------------


@every_version
def test_a_haiku_is_shown_by_a_tool_of_the_page_and_the_run_is_over(
    agent: NewAgent, http: httpx2.Client, version: str
) -> None:
    page = agent(version, "tool_based_generative_ui", tools=("generate_haiku",))
    seen = page.finish(user("Write me a haiku about nature."))
    call = seen.call("generate_haiku")  # without a result: the page performs its handler
    assert (len(call["arguments"]["japanese"]), call["arguments"]["english"][0]) == (3, "The old pond.")
    assert run_of(http, page.thread_id)["status"] == "finished"
    assert seen.said == ["Here is one by Bashō."]


@every_version
def test_an_answer_to_a_haiku_does_nothing_and_the_next_one_comes(
    agent: NewAgent, http: httpx2.Client, version: str
) -> None:
    page = agent(version, "tool_based_generative_ui", tools=("generate_haiku",))
    call = page.run(user("Write me a haiku about nature.")).call("generate_haiku")
    before = log_of(http, page.thread_id)
    answered = page.finish(tool(call["id"], "Haiku generated!"))  # a page whose tool has a follow-up
    assert answered.open_calls == []
    assert log_of(http, page.thread_id) == before
    again = page.finish(user("And one about the ocean."))
    assert [each["name"] for each in again.open_calls] == ["generate_haiku"]
    assert [run["status"] for run in runs_of(http, page.thread_id)] == ["finished"] * 2


@every_version
def test_a_reopened_page_shows_the_haiku_without_performing_it_again(agent: NewAgent, version: str) -> None:
    page = agent(version, "tool_based_generative_ui", tools=("generate_haiku",))
    seen = page.run(user("Write me a haiku about nature."))
    page.finish(user("Another one."))  # without an answer to the first, as with `followUp: false`
    again = page.reloaded().finish()
    assert again.open_calls == []
    assert again.calls[0] == seen.calls[0]
    assert len(again.calls) == 2


# --- predictive state updates -------------------------------------------------------------------------------------

STORY = 'Once upon a time there was somebody called Luna.\n\n"What now?" they said, and went to sea.'


@with_state
def test_a_document_grows_as_the_argument_of_a_call_and_the_user_keeps_it(
    agent: NewAgent, http: httpx2.Client, version: str
) -> None:
    page = agent(version, "predictive_state_updates", tools=("write_document_local", "confirm_changes"))
    seen = page.finish(user("Luna"))
    told = seen.one("CUSTOM")
    assert told["name"] == "PredictState"
    assert told["value"] == [{"state_key": "document", "tool": "write_document_local", "tool_argument": "document"}]
    call, confirm = seen.call("write_document_local"), seen.call("confirm_changes")
    assert call["arguments"] == {"document": STORY}
    pieces = [event["delta"] for event in seen.all("TOOL_CALL_ARGS") if event["toolCallId"] == call["id"]]
    assert len(pieces) > 4
    assert seen.types.index("CUSTOM") < seen.types.index("TOOL_CALL_START")
    assert seen.state["document"] == STORY
    kept = page.finish(tool(confirm["id"], {"accepted": True}))
    assert (kept.said[-1], kept.state["document"]) == ("Ok!", STORY)
    assert performed(http, page.thread_id, "write") == 1


@with_state
def test_a_document_that_the_user_rejects_is_taken_back(agent: NewAgent, version: str) -> None:
    page = agent(version, "predictive_state_updates", tools=("write_document_local", "confirm_changes"))
    confirm = page.run(user("Luna")).call("confirm_changes")
    rejected = page.finish(tool(confirm["id"], {"accepted": False}))
    assert (rejected.said[-1], rejected.state["document"]) == ("It stays as it was.", "")


@every_version
def test_the_client_foresees_the_state_while_the_document_grows(agent: NewAgent, version: str) -> None:
    """As CopilotKit's older frontends have it: the client itself makes states of the arguments so far."""
    page = agent(version, "predictive_state_updates", tools=("write_document_local", "confirm_changes"))
    foreseen = [state["document"] for state in page.bridged(user("Luna")) if state.get("document")]
    assert len(foreseen) > 4
    assert all(STORY.startswith(document) for document in foreseen)
    assert foreseen[-1] == STORY


# --- interrupt ----------------------------------------------------------------------------------------------------

TEN = {"chosen_time": "2027-03-03T10:00:00.000Z", "chosen_label": "Wed, Mar 3, 10:00 AM"}


@with_state
def test_a_time_is_picked_at_an_interrupt(agent: NewAgent, version: str) -> None:
    page = agent(version, "interrupt")
    asked = page.finish(user("Schedule a 1:1 with Alice."))
    assert "Schedule a 1:1 with Alice." in asked.interrupts[0]["message"]
    told = [event for event in asked.all("CUSTOM") if event["name"] == "on_interrupt"]
    assert [event["value"] for event in told] == ([] if version == "1.0.0" else asked.interrupts)
    picked = page.finish(resume=[resolved(asked.interrupts[0]["id"], TEN)])
    assert picked.said == ["Booked: Wed, Mar 3, 10:00 AM."]


@pytest.mark.parametrize("as_text", [False, True])
@pytest.mark.parametrize("version", ["0.0.48", "0.0.42"])
def test_a_page_without_interrupts_is_told_of_one_and_answers_by_command(
    agent: NewAgent, version: str, as_text: bool
) -> None:
    page = agent(version, "interrupt")
    asked = page.finish(user("Schedule a 1:1 with Alice."))
    (told,) = [event["value"] for event in asked.all("CUSTOM") if event["name"] == "on_interrupt"]
    assert told["responseSchema"]["properties"]["chosen_time"] == {"type": "string", "format": "date-time"}
    command = {"resume": {"cancelled": True}, "interruptEvent": json.dumps(told) if as_text else told}
    answered = page.finish(forwardedProps={"command": command})
    assert answered.said == ["Nothing is booked."]


@pytest.mark.parametrize("version", ["0.0.48", "0.0.42"])
def test_open_questions_are_repeated_at_the_end_of_an_answering_run(
    agent: NewAgent, http: httpx2.Client, version: str
) -> None:
    page = agent(version, "purge_both")
    told = [e["value"] for e in page.run(user()).all("CUSTOM") if e["name"] == "on_interrupt"]
    assert len(told) == 2
    command = {"resume": {"approved": True}, "interruptEvent": told[1]}
    left = page.reloaded().run(forwardedProps={"command": command})
    assert [e["value"]["id"] for e in left.all("CUSTOM") if e["name"] == "on_interrupt"] == [told[0]["id"]]
    assert sorted(decisions(http, page.thread_id)) == ["approve", "open"]


# --- shared state -------------------------------------------------------------------------------------------------

RECIPE = {
    "title": "Carrot cake", "skill_level": "Intermediate", "cooking_time": "45 min", "special_preferences": ["Vegan"],
    "ingredients": [{"icon": "🥕", "name": "Carrots", "amount": "3 large, grated"}],
    "instructions": ["Preheat the oven."],
}  # fmt: skip


@with_state
def test_a_recipe_edited_by_the_user_is_improved_in_the_same_thread(
    agent: NewAgent, http: httpx2.Client, version: str
) -> None:
    page = agent(version, "shared_state")
    seen = page.finish(user("Make it healthier."), sets={"recipe": RECIPE, "something": "of the page's own"})
    assert seen.all("STATE_SNAPSHOT")[0]["snapshot"] == {"recipe": RECIPE}
    better = seen.state["recipe"]
    assert [each["name"] for each in better["ingredients"]] == ["Carrots", "salt"]
    assert better["instructions"] == ["Preheat the oven.", "Season to taste: Make it healthier."]
    edited = {**better, "title": "Carrot soup"}
    again = page.run(user("More."), sets={"recipe": edited})
    assert (again.state["recipe"]["title"], len(again.state["recipe"]["instructions"])) == ("Carrot soup", 3)
    other = page.reloaded().run(user("And more."))  # a page that posts no state: the thread has kept it
    assert (other.state["recipe"]["title"], len(other.state["recipe"]["instructions"])) == ("Carrot soup", 4)
    assert [run["status"] for run in runs_of(http, page.thread_id)] == ["finished"] * 3


@every_version
def test_an_invalid_recipe_is_refused_with_its_faults_and_nothing_starts(
    agent: NewAgent, http: httpx2.Client, version: str
) -> None:
    page = agent(version, "shared_state")
    refused = page.run(user("Improve it."), sets={"recipe": {**RECIPE, "cooking_time": "3 weeks"}})
    assert (refused.status, refused.problem["code"]) == (422, "state.invalid")
    assert [finding["path"] for finding in refused.problem["findings"]] == ["/state/recipe/cooking_time"]
    assert runs_of(http, page.thread_id) == []


@with_state
def test_a_document_that_the_user_writes_is_the_one_that_is_rewritten(agent: NewAgent, version: str) -> None:
    page = agent(version, "predictive_state_updates", tools=("confirm_changes",))
    confirm = page.run(user("Luna"), sets={"document": "By hand."}).call("confirm_changes")
    rejected = page.finish(tool(confirm["id"], {"accepted": False}), sets={"document": "By hand."})
    assert rejected.all("STATE_SNAPSHOT")[0]["snapshot"]["document"] == "By hand."
    assert rejected.state["document"] == "By hand."


# --- subgraphs ----------------------------------------------------------------------------------------------------


def edges(seen: Seen) -> list[str]:
    """The steps that begin (+) and end (-), in order."""
    signs = {"STEP_STARTED": "+", "STEP_FINISHED": "-"}
    return [signs[event["type"]] + event["stepName"] for event in seen.events if event["type"] in signs]


@with_state
@pytest.mark.parametrize("as_text", [False, True])
def test_agents_plan_a_trip_with_steps_nested_in_the_supervisors(
    agent: NewAgent, http: httpx2.Client, version: str, as_text: bool
) -> None:
    def chosen(option: dict[str, str]) -> str | dict[str, str]:
        return json.dumps(option) if as_text else option  # as the page does it, and as a form would

    page = agent(version, "subgraphs")
    asked = page.finish(user("Plan a trip."))
    assert edges(asked) == [
        "+find_flights", "-find_flights", "+flights", "+flights/choose", "-flights/choose", "-flights",
    ]  # fmt: skip
    assert (asked.state["active_agent"], asked.said) == ("flights", ["I have found 2 flights."])
    assert "I recommend KLM." in asked.interrupts[0]["message"]
    flight = asked.state["flights"][1]
    hotels = page.finish(resume=[resolved(asked.interrupts[0]["id"], chosen(flight))])
    assert (hotels.state["itinerary"], hotels.state["active_agent"]) == ({"flight": flight}, "hotels")
    assert edges(hotels)[-4:] == ["+hotels", "+hotels/choose", "-hotels/choose", "-hotels"]
    hotel = hotels.state["hotels"][0]
    done = page.finish(resume=[resolved(hotels.interrupts[0]["id"], chosen(hotel))])
    assert edges(done)[-4:] == ["+experiences", "+experiences/find", "-experiences/find", "-experiences"]
    assert done.state["itinerary"] == {"flight": flight, "hotel": hotel}
    assert (len(done.state["experiences"]), done.state["active_agent"]) == (2, "supervisor")
    assert done.said[-2:] == [
        "There is a lot to do in San Francisco.", "Your trip is planned; have a good flight with United.",
    ]  # fmt: skip
    by_name = {run["workflow"]: run["status"] for run in runs_of(http, page.thread_id)}
    assert by_name == dict.fromkeys(
        ["subgraphs", "subgraphs_flights", "subgraphs_hotels", "subgraphs_experiences"], "finished"
    )
    again = page.reloaded().finish()
    assert (again.said, again.state) == (done.said, done.state)


@with_state
def test_an_option_that_no_agent_offers_is_refused_and_stays_open(agent: NewAgent, version: str) -> None:
    page = agent(version, "subgraphs")
    interrupt = page.run(user("Plan a trip.")).interrupts[0]["id"]
    for wrong in ({"airline": "Nobody"}, "no JSON", "5", {}):
        refused = page.reloaded().run(resume=[resolved(interrupt, wrong)])
        assert (refused.status, refused.problem["code"]) == (422, "answer.invalid")
    assert page.reloaded().run().interrupts[0]["id"] == interrupt


# --- chat, a server's tool, a plan to choose from, a plan that goes on ---------------------------------------------


@every_version
def test_a_chat_answers_and_changes_the_background_if_asked_to(agent: NewAgent, version: str) -> None:
    page = agent(version, "agentic_chat", tools=("change_background",))
    hello = page.finish(user("Hi, I am Duaa."))
    assert (hello.open_calls, hello.said[0].startswith("You said: Hi, I am Duaa.")) == ([], True)
    changed = page.finish(user("Change the background."))
    assert changed.call("change_background")["arguments"]["background"].startswith("linear-gradient")


@every_version
def test_the_weather_is_a_card_with_the_result_of_a_servers_tool(agent: NewAgent, version: str) -> None:
    seen = agent(version, "backend_tool_rendering").finish(user("San Francisco"))
    assert (seen.calls[0]["name"], seen.calls[0]["arguments"]) == ("get_weather", {"location": "San Francisco"})
    shown = json.loads(next(message["content"] for message in seen.messages if message["role"] == "tool"))
    assert set(shown) == {"temperature", "conditions", "humidity", "windSpeed", "feelsLike"}


@every_version
@pytest.mark.parametrize("accepted", [True, False])
def test_the_steps_of_a_plan_are_chosen_on_the_page(agent: NewAgent, version: str, accepted: bool) -> None:
    page = agent(version, "human_in_the_loop", tools=("generate_task_steps",))
    call = page.run(user("Plan a trip to Mars.")).call("generate_task_steps")
    steps = call["arguments"]["steps"]
    assert {step["status"] for step in steps} == {"enabled"}
    given = {"accepted": True, "steps": steps[:2]} if accepted else {"accepted": False}
    done = page.finish(tool(call["id"], given))
    assert done.said[-1] == ("I do it: Build a rocket, Choose a crew." if accepted else "Then I do nothing.")


@with_state
def test_the_steps_of_a_plan_are_completed_one_after_the_other(agent: NewAgent, version: str) -> None:
    seen = agent(version, "agentic_generative_ui").finish(user("Make a sandwich."))
    assert len(seen.all("STATE_DELTA")) == 4
    assert [step["status"] for step in seen.state["steps"]] == ["completed"] * 3
