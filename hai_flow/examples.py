"""The Python tools of the example workflows: small, harmless, and different in kind.

`answer` and `write_story` stream, `get_weather` and `deploy` are coroutines, `delete_files` is an ordinary function
with a Context. The tools at the end stand in for the services that `workflows/examples` calls. No tool here touches
anything outside the process."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from typing import Any

from hai_flow.errors import StepError
from hai_flow.steps.tools import Context, tool

_WEATHER = {"北京": "晴天,25°C", "上海": "多云,22°C", "Berlin": "rain, 12°C"}


@tool("examples.answer")
async def answer(message: str) -> AsyncIterator[str]:
    """Answer a message word by word, as a model would."""
    text = f"You said: {message}. " if message else "Hello! "
    text += "HAI Flow keeps this conversation in PostgreSQL, so it can wait for you as long as you like."
    for piece in re.findall(r"\S+\s*", text):
        yield piece
        await asyncio.sleep(0.02)


@tool("examples.write_story")
async def write_story(about: str) -> AsyncIterator[str]:
    """Write a very short story word by word, as a model would."""
    text = f'Once upon a time there was somebody called {about or "Nobody"}.\n\n"What now?" they said, and went to sea.'
    for piece in re.findall(r"\S+\s*", text):
        yield piece
        await asyncio.sleep(0.02)


@tool("examples.improve_recipe")
async def improve_recipe(recipe: dict[str, Any], wish: str) -> dict[str, Any]:
    """A recipe with a pinch of something more, and the wish that it answers as its last instruction."""
    more = {"icon": "🧂", "name": "salt", "amount": "a pinch"}
    instruction = f"Season to taste: {wish}" if wish else "Season to taste."
    names = [each["name"] for each in recipe["ingredients"]]
    ingredients = recipe["ingredients"] + ([] if "salt" in names else [more])
    return {**recipe, "ingredients": ingredients, "instructions": [*recipe["instructions"], instruction]}


@tool("examples.find_flights")
async def find_flights(origin: str, destination: str) -> list[dict[str, str]]:
    """Two flights, always the same."""
    route = {"departure": f"{origin} (AMS)", "arrival": f"{destination} (SFO)"}
    return [
        {"airline": "KLM", **route, "price": "$650", "duration": "11h 30m"},
        {"airline": "United", **route, "price": "$720", "duration": "12h 15m"},
    ]


@tool("examples.find_hotels")
async def find_hotels(city: str) -> list[dict[str, str]]:
    """Two hotels, always the same."""
    return [
        {"name": "Hotel Zoe", "location": f"Wharf, {city}", "price_per_night": "$250", "rating": "4.2 stars"},
        {"name": "The Ritz-Carlton", "location": f"Nob Hill, {city}", "price_per_night": "$550", "rating": "4.8 stars"},
    ]


@tool("examples.find_experiences")
async def find_experiences(city: str) -> list[dict[str, str]]:
    """Two things to do, always the same."""
    return [
        {"name": "The pier", "type": "activity", "description": "Sea lions and a view", "location": city},
        {"name": "The bakery", "type": "restaurant", "description": "Sourdough since 1849", "location": city},
    ]


@tool("examples.report_weather")
async def report_weather(location: str) -> dict[str, object]:
    """The weather of any place, always the same, as pages show it."""
    return {"temperature": 20, "conditions": "sunny", "humidity": 50, "windSpeed": 10, "feelsLike": 21}


@tool("examples.get_weather")
async def get_weather(city: str) -> str:
    """The weather of a few cities, always the same."""
    return _WEATHER.get(city, "晴天,20°C")


@tool("examples.delete_files")
def delete_files(folder: str, count: int, context: Context) -> dict[str, object]:
    """Pretend to delete files. The receipt is the same for every attempt, as a careful service's would be."""
    return {"deleted": count, "folder": folder, "receipt": context.idempotency_key}


@tool("examples.refund")
def refund(order: str, amount: float, context: Context) -> dict[str, object]:
    """Pretend to pay money back. The receipt is the same for every attempt, so that a careful bank pays once."""
    return {"order": order, "refunded": amount, "receipt": context.idempotency_key}


@tool("examples.pay")
def pay(supplier: str, amount: float, context: Context) -> dict[str, object]:
    """Pretend to pay a supplier. The receipt is the same for every attempt, too."""
    return {"supplier": supplier, "paid": amount, "receipt": context.idempotency_key}


@tool("examples.deploy")
async def deploy(release: str) -> dict[str, str]:
    """Pretend to deploy a release."""
    return {"release": release, "url": f"https://example.com/{release}"}


# --- a company's services, for workflows/examples -----------------------------------------------------------------

_RATES = {"EUR": 1.0, "USD": 0.9, "CNY": 0.125}


@tool("examples.to_eur")
def to_eur(amount: float, currency: str) -> dict[str, float]:
    """An amount in euros, at rates that never change."""
    return {"eur": round(amount * _RATES[currency], 2)}


@tool("examples.send")
def send(to: str, subject: str, body: str, context: Context) -> dict[str, object]:
    """Pretend to send an e-mail."""
    return {"sent": True, "to": to, "message_id": context.idempotency_key}


@tool("examples.book_expense")
def book_expense(employee: str, amount: float, cost_center: str, context: Context) -> dict[str, str]:
    """Pretend to book an expense. The number is the same for every attempt."""
    return {"booking_id": f"{cost_center}/{context.idempotency_key}"}


@tool("examples.deploy_canary")
async def deploy_canary(service: str, release: str) -> dict[str, str]:
    """Pretend to deploy a release beside the one that is live; which one that is."""
    return {"service": service, "release": release, "previous_release": "v1.0.0"}


@tool("examples.rollback")
async def rollback(service: str, to: str) -> dict[str, str]:
    """Pretend to go back to an older release."""
    return {"service": service, "release": to}


@tool("examples.health")
async def health(service: str, most: float) -> dict[str, float]:
    """The share of requests to a service that fail, always the same. Raises StepError if it is more than `most`."""
    share = 0.001
    if share > most:
        raise StepError(f"{service}: {share:.1%} of the requests fail", data={"error_rate": share})
    return {"error_rate": share}


@tool("examples.promote")
async def promote(service: str, release: str) -> dict[str, str]:
    """Pretend to make a release the one that is live."""
    return {"service": service, "release": release}
