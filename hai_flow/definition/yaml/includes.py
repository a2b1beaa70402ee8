"""The files that a workflow uses, read: each with the reader that its findings go to; and documents of services."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from hai_flow.definition.names.wording import shorten
from hai_flow.definition.yaml.document import parse
from hai_flow.definition.yaml.include_keys import Part, label, list_services
from hai_flow.definition.yaml.key_table import SHARED
from hai_flow.definition.yaml.mapping_reader import Reader
from hai_flow.values import Json

_NOT_SENT: Final = (
    "{name} is not here: what is published holds what it uses; let `hai-flow publish` send it along, or put the file "
    "behind this document, after a line `---`"
)


@dataclass(slots=True)
class Used:
    """`documents` are those that could be read, with their fields. `incomplete`: one could not, or not all of it.
    `services` are the documents of services, as findings call them."""

    documents: list[tuple[Reader, Mapping[str, Json]]] = field(default_factory=list)
    incomplete: bool = False
    services: dict[str, Part] = field(default_factory=dict)

    def service(self, file: str, name: str) -> Part:
        return self.services.get(label(file, name)) or Part(b"", _NOT_SENT.format(name=shorten(name, 80)))


def read_used(reader: Reader, fields: Mapping[str, Json], parts: Sequence[Part], readers: list[Reader]) -> Used:
    """The documents that the workflow uses; names that stand twice are findings. `readers` gets one for each."""
    named = [each for each in fields.get("use", ()) if isinstance(each, str)]
    used = Used()
    for index, name in enumerate(named):
        part = parts[index] if index < len(parts) else Part(b"", _NOT_SENT.format(name=shorten(name, 80)))
        if part.fault:
            used.incomplete = True
            reader.error(("use", index), "use.missing", part.fault)
            continue
        inner = Reader(parse(part.text, label(reader.document.file, name)), stored=reader.stored)
        readers.append(inner)
        if inner.document.value is None and inner.findings:
            used.incomplete = True
            continue
        sections = inner.fields(SHARED, inner.document.value, (), "a file that is used")
        used.incomplete = used.incomplete or bool(inner.findings)
        used.documents.append((inner, sections))
    texts = [(name, part.text) for name, part in zip(named, parts, strict=False)]
    services = list_services(reader.document.value, texts)
    for name, part in zip(services, parts[len(named) :], strict=False):
        used.services[label(reader.document.file, name)] = part
    if len(parts) > len(named) + len(services):
        expected = len(named) + len(services)
        reader.error(("use",), "use.more", f"expected {expected} documents behind this one, found more")
    _refuse_twins([*used.documents, (reader, fields)])
    return used


def _refuse_twins(documents: Sequence[tuple[Reader, Mapping[str, Json]]]) -> None:
    for section in ("models", "tools", "roles"):
        first_files: dict[str, str] = {}
        for reader, fields in documents:
            for name in fields.get(section, ()):
                if name in first_files:
                    message = f"`{name}` of `{section}` stands in {first_files[name]} already; take one of them out"
                    reader.error((section, name), "use.twice", message, key=True)
                first_files.setdefault(name, reader.document.file)
