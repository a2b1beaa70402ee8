"""Values that are hidden in texts, in each form in which a service is likely to repeat them.

A text is looked through once, whatever the number of values: every value has six characters or more, so it is enough
to look up four characters at every third place. Nothing is compiled, so that a new value costs only its own forms.
Long texts are looked through beside the loop, while values are added on it: each look is one call on what there is."""

from __future__ import annotations

import base64
import html
import json
import re
from collections import Counter
from collections.abc import Iterable
from typing import Final
from urllib.parse import quote, quote_plus

from hai_flow import values

SHOWN_MIN: Final = 6  # a shorter value would blacken half of the texts that contain it
HIDDEN: Final = "[secret]"
FORMS_FEW: Final = 256  # up to so many forms are sought one by one, which is faster than looking up places
_GRAM: Final = 4  # characters
_STRIDE: Final = SHOWN_MIN - _GRAM + 1
_TO_URL: Final = str.maketrans("+/", "-_")
_IN_GO: Final = str.maketrans({"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"})  # and in PHP, on request
_IN_NET: Final = str.maketrans({"<": "\\u003C", ">": "\\u003E", "&": "\\u0026", "'": "\\u0027", "+": "\\u002B"})


class Hider:
    """The last `values_max` values, which `hide` takes out of texts."""

    def __init__(self, values_max: int) -> None:
        self._values_max = values_max
        self._values: dict[str, frozenset[str]] = {}  # the newest last
        self._forms: Counter[str] = Counter()
        self._by_gram: dict[str, set[str]] = {}

    def __len__(self) -> int:
        return len(self._values)

    def add(self, value: str) -> None:
        """Hide `value` from now on, if it has six characters or more."""
        if len(value) < SHOWN_MIN:
            return
        forms = self._values.pop(value, None)
        if forms is None:
            forms = list_forms(value)
            for form in forms - self._forms.keys():
                for gram in _grams_of(form):
                    self._by_gram.setdefault(gram, set()).add(form)
            self._forms.update(forms)
        self._values[value] = forms
        if len(self._values) > self._values_max:
            self._remove(next(iter(self._values)))

    def hide(self, text: str) -> str:
        """`text` without the values."""
        if len(self._forms) <= FORMS_FEW:
            return without(text, list(self._forms))
        grams = {text[place : place + _GRAM] for place in range(0, len(text), _STRIDE)} & self._by_gram.keys()
        return without(text, set().union(*(self._by_gram.get(gram, ()) for gram in grams))) if grams else text

    def _remove(self, value: str) -> None:
        for form in self._values.pop(value):
            self._forms[form] -= 1
            if self._forms[form]:
                continue
            del self._forms[form]
            for gram in _grams_of(form):
                self._by_gram[gram].discard(form)
                if not self._by_gram[gram]:
                    del self._by_gram[gram]


def without(text: str, forms: Iterable[str]) -> str:
    """`text` without any of `forms`; a form that contains another goes first."""
    for form in sorted((form for form in forms if form in text), key=len, reverse=True):
        text = text.replace(form, HIDDEN)
    return text


def list_forms(value: str) -> frozenset[str]:
    """A value as it is, in JSON, in addresses, in HTML, and in Base64 of both alphabets, wherever in a longer text it
    begins. Writers of JSON escape more than they have to, each in its way, and some write addresses in small
    letters."""
    forms = {value, html.escape(value), html.escape(value, quote=False), html.escape(value).replace("&#x27;", "&#39;")}
    for text in (values.dumps(value).decode()[1:-1], json.dumps(value)[1:-1]):
        forms |= {text, text.replace("/", "\\/"), text.translate(_IN_GO), text.translate(_IN_NET)}
    for address in (quote(value, safe=""), quote_plus(value, safe="")):
        forms |= {address, re.sub("%..", lambda code: code[0].lower(), address)}
    raw = value.encode()
    for before in range(3):
        encoded = base64.b64encode(bytes(before) + raw).decode().rstrip("=")
        ours = encoded[before + 1 if before else 0 :]  # the first characters also hold bits of the text before
        inner = ours[:-1] if (before + len(raw)) % 3 else ours  # and the last one bits of the text behind
        forms |= {form for each in (ours, inner) for form in (each, each.translate(_TO_URL))}
    return frozenset(form for form in forms if len(form) >= SHOWN_MIN)


def _grams_of(form: str) -> Iterable[str]:
    return (form[place : place + _GRAM] for place in range(_STRIDE))
