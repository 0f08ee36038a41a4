"""One output against one schema: the result and, where the schema is broken, the keyword."""

from __future__ import annotations

from collections.abc import Callable

from collector.validation.json_text import Document, read
from collector.validation.schema import Schema, UnusableSchemaError, compile_schema

Verdict = tuple[str, str | None]


def judge(text: str, schema: bytes | None, kind: str, compiled: Callable[[bytes], Schema] = compile_schema) -> Verdict:
    """The result of the catalogue's VALIDITY_RESULTS, and the failing keyword of a violation.

    Never raises on any text or schema but MemoryError; may take for ever, so it runs in a process that can be killed.
    The JSON is judged first: what is not JSON satisfies no schema, whatever that may be worth.
    """
    document = read(text)
    if document.fault is not None:
        return document.fault, None
    result, keyword = against(document, schema, kind, compiled)
    if kind != "contract":
        return result, keyword
    if result == "schema_violation":
        return "contract_violation", keyword
    return (result if result == "valid" else "contract_error"), keyword


def against(document: Document, schema: bytes | None, kind: str, compiled: Callable[[bytes], Schema]) -> Verdict:
    """The result of a document that is JSON; never `contract_violation` or `contract_error`."""
    if schema is None:
        if kind == "json" and not isinstance(document.value, dict):
            return "schema_violation", "type"  # JSON mode promises an object.
        return "valid", None
    try:
        keyword = compiled(schema).failing_keyword(document.value, document.exact)
    except UnusableSchemaError as error:
        return error.fault, None
    except RecursionError:
        return "schema_recursion", None
    except MemoryError:
        raise
    except Exception:  # noqa: BLE001 - jsonschema on a part of the schema that its draft's own schema does not check
        return "schema_invalid", None
    return ("valid", None) if keyword is None else ("schema_violation", keyword)
