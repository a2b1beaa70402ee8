"""The objects of the Agent API, and builders that stream them in the right order.

Three layers: a `ResponseBuilder` makes `MessageBuilder`s, which make `ContentBuilder`s. Every method returns the
object to send next, as a plain dict ready for JSON; nothing is sent here:

    response = ResponseBuilder(session_id="s1")
    send(response.created())
    send(response.in_progress())
    message = response.create_message_builder()
    send(message.in_progress())
    text = message.create_content_builder("text")
    send(text.add_text_delta("Hel"))
    send(text.add_text_delta("lo"))
    send(text.complete())
    send(message.complete())
    send(response.completed())

Ids and times may be given; without them, ids are new and times are now. Optional fields without a value are written as
null, because the runtime that most clients were written against does so. `Sequence` puts a stream's numbers
(`sequence_number`) in front of its objects, because only the sender knows the objects that it has sent."""

from hai_flow.agent_api.builders import ContentBuilder, MessageBuilder, ResponseBuilder, Sequence
from hai_flow.agent_api.types import ContentType, MessageType, Role, RunStatus

__all__ = [
    "ContentBuilder",
    "ContentType",
    "MessageBuilder",
    "MessageType",
    "ResponseBuilder",
    "Role",
    "RunStatus",
    "Sequence",
]
