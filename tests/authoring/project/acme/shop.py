"""Functions that the samples of mistakes call."""

from dataclasses import dataclass
from datetime import date
from enum import Enum
from typing import Literal, TypedDict

from hai_flow import Context, tool


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


@dataclass
class Line:
    sku: str
    count: int = 1


class Order(TypedDict):
    id: str
    total: float


@tool
def refund(order: str, amount: float) -> dict:
    return {"id": order}


@tool
def ship(lines: list[Line], on: date, colour: Colour = Colour.RED, *, speed: Literal["slow", "fast"] = "slow") -> Order:
    return {"id": "1", "total": 1.0}


@tool
async def count(names: list[str], limit: int = 3) -> int:
    return len(names)


@tool
def words(text: str):
    yield text


@tool
def send(to: str, body: str, context: Context) -> None:
    return None


@tool
def cancel(order: str) -> None:
    return None


def _hidden(a: str) -> str:
    return a


class Helper:
    def go(self) -> str:
        return ""
