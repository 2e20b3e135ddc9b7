"""Log lines as JSON objects, for PREFECT_LOGGING_HANDLERS_CONSOLE_FORMATTER=json."""

import logging

from prefect.logging.formatters import JsonFormatter as PrefectJsonFormatter


class JsonFormatter(PrefectJsonFormatter):
    """Prefect's own, which leaves "%s rows" and its arguments apart, with the `message` they make.

    Prefect takes it where PREFECT_LOGGING_FORMATTERS_JSON_CLASS names it.
    """

    def format(self, record: logging.LogRecord) -> str:
        record.message = record.getMessage()
        return super().format(record)
