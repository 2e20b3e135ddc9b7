"""Stages, and functions with the values they were given, inside of what pydantic writes as JSON.

Whoever has pydantic write or read them says how, as its context: `write(value)` and `read(told)`
(flows/runner/pools/order.py).
"""

from typing import Any

from pydantic import GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema


class Referred:
    """Annotates the type of values that pydantic's context writes and reads."""

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        return core_schema.with_info_plain_validator_function(
            lambda told, about: about.context.read(told),
            serialization=core_schema.plain_serializer_function_ser_schema(
                lambda value, about: about.context.write(value), info_arg=True
            ),
        )
