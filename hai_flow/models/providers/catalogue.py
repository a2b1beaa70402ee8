"""The models of this deployment: the meaning of each name of `models:`, and the endpoint that serves it.

The deployment has a catalogue, a file like

    hai: models/v1
    models:
      smart:
        provider: openai
        model: gpt-5.4
        api_key: ${{ secrets.OPENAI }}

Workflows name its models (`use: smart`), and give no address and no key. A workflow may also declare a model in full.
If that workflow came over the network, its declaration is restricted: only the known addresses of its provider, and
only keys that are bound to them. Otherwise it could send the deployment's keys to any address."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final
from urllib.parse import urlsplit

from hai_flow.definition.declarations import Declarations
from hai_flow.definition.names.known_names import Names, Types
from hai_flow.definition.names.wording import suggestion
from hai_flow.definition.plan import Model
from hai_flow.definition.yaml.document import parse
from hai_flow.definition.yaml.key_table import CATALOGUE
from hai_flow.definition.yaml.mapping_reader import Reader
from hai_flow.errors import Finding
from hai_flow.models.faults import not_configured
from hai_flow.models.providers.presets import PRESETS, Preset
from hai_flow.models.vocabulary import Endpoint, Price, Quirks
from hai_flow.primitives.hosts import is_loopback, place_fault
from hai_flow.values import Json

KIND: Final = "models/v1"
_TOTAL: Final = 300.0
_IDLE: Final = 60.0


def read_catalogue(source: bytes, file: str) -> tuple[dict[str, Model], list[Finding]]:
    reader = Reader(parse(source, file))
    declarations = Declarations(reader)
    fields = reader.fields(CATALOGUE, reader.document.value, (), "the catalogue of models")
    declarations.read_models(fields.get("models", {}), Names(Types({}, {}), frozenset()))
    declarations.check_fallbacks()
    models = {name: each for name, each in declarations.models.items() if each is not None}
    for name, each in models.items():
        if each.use is not None:
            reader.error(("models", name, "use"), "model.use", "a catalogue says what a model is; it can't `use` one")
    return models, reader.findings


class Catalogue:
    """The models of this deployment. `offered`: the providers that packages add, by name."""

    def __init__(self, models: Mapping[str, Model] | None = None, offered: Collection[str] = ()) -> None:
        self._models = dict(models or {})
        self._offered = frozenset(offered)

    @property
    def names(self) -> frozenset[str]:
        """The names that `use` may give."""
        return frozenset(self._models)

    def endpoints(self, models: Collection[Model], *, from_disk: bool) -> list[Endpoint]:
        """How the first of `models` is reached, then those that are asked where it does not answer: its own in the
        catalogue, then the others. `from_disk`: the workflow was read from a file of this machine.

        Keys are only named (`Endpoint.secret`). Raises StepError `llm.not_configured`."""
        by_name: dict[str, Endpoint] = {}
        for model in models:
            for each, is_ours in self._resolve_models(model):
                endpoint = self._build_endpoint(each, model, is_ours=is_ours, trusted=is_ours or from_disk)
                by_name.setdefault(each.name if is_ours else f"\0{each.name}", endpoint)
        return list(by_name.values())

    def _resolve_models(self, model: Model) -> list[tuple[Model, bool]]:
        """The models that a declaration stands for, each with whether it comes from the deployment's catalogue.

        A full declaration stands for itself; one with `use` for the catalogue's model and its fallbacks."""
        if model.use is None:
            return [(model, False)]
        first = self._models.get(model.use)
        if first is None:
            names = ", ".join(sorted(self._models)) or "none"
            hint = suggestion(model.use, self._models) or f"; its catalogue (HAI_FLOW_MODELS) has {names}"
            raise not_configured(f"this deployment has no model `{model.use}`{hint}")
        return [(self._models[name], True) for name in dict.fromkeys((model.use, *first.fallback))]

    def _build_endpoint(self, model: Model, asked: Model, *, is_ours: bool, trusted: bool) -> Endpoint:
        """`asked` is the model of the workflow: its parameters and times override those of the catalogue."""
        preset = PRESETS.get(model.provider)
        if preset is None and model.provider not in self._offered:
            providers = ", ".join([*PRESETS, *sorted(self._offered)])
            hint = suggestion(model.provider, [*PRESETS, *self._offered])
            raise not_configured(f"nobody provides models as `{model.provider}` here{hint}; there are {providers}")
        preset = preset or Preset(keyless=True)
        base_url = self._base_url(model, preset, trusted=trusted)
        total = asked.total or model.total
        idle = asked.idle or model.idle
        return Endpoint(
            name=asked.name,
            provider=model.provider,
            model=model.model,
            base_url=base_url,
            secret=self._secret(model, preset),
            ours=is_ours,
            key_header=preset.key_header,
            api=model.api or "chat",
            params={**model.params, **asked.params},
            quirks=_quirks(preset.quirks, model.quirks),
            context=model.context,
            total=_TOTAL if total is None else total / 1000,
            idle=_IDLE if idle is None else idle / 1000,
            price=None if model.price is None else Price(**model.price),
        )

    def _base_url(self, model: Model, preset: Preset, *, trusted: bool) -> str:
        default, own = preset.base_url, model.base_url
        if own is not None and own.rstrip("/") != default and not trusted:
            raise not_configured(
                f"the model `{model.name}` has an address of its own, which a published workflow can't bring along; "
                "declare it in the deployment's catalogue (HAI_FLOW_MODELS) and name it with `use`"
            )
        url = (own or default).rstrip("/")
        if fault := place_fault(url):
            raise not_configured(f"`base_url` of `{model.name}`: {fault}")
        if not trusted and is_loopback(urlsplit(url).hostname or ""):
            raise not_configured(
                f"`{model.provider}` means this machine, which a published workflow can't reach; declare it in the "
                "deployment's catalogue (HAI_FLOW_MODELS) and name it with `use`"
            )
        if not url and model.provider in PRESETS:
            raise not_configured(f"`base_url` is missing for `{model.provider}`: each deployment has its own")
        if url and (urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).hostname):
            raise not_configured(f"expected an address like https://host/v1 as `base_url`, found {url!r}")
        return url

    def _secret(self, model: Model, preset: Preset) -> str | None:
        if model.key is not None or preset.keyless:
            return model.key
        raise not_configured(f"the model `{model.name}` has no `api_key`, and `{model.provider}` asks for one")


def _quirks(known: Quirks, said: Mapping[str, Json]) -> Quirks:
    if not said:
        return known
    return Quirks(**{name: said.get(name, getattr(known, name)) for name in Quirks.__struct_fields__})
