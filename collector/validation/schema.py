"""JSON Schema as semhealth applies it: five drafts, `format` as annotation, nothing fetched, no endless references."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from decimal import Decimal
from fractions import Fraction
from functools import partial
from itertools import islice
from math import isfinite
from typing import Any, Literal
from urllib.parse import urljoin

from jsonschema import validators
from jsonschema.exceptions import ValidationError, best_match
from jsonschema_specifications import REGISTRY
from msgspec import Struct
from msgspec.structs import replace
from referencing import Registry, Specification
from referencing import jsonschema as drafts
from referencing.exceptions import Unresolvable

from collector.validation import ecma, fast, json_text

SchemaFault = Literal["schema_invalid", "schema_unresolvable", "schema_recursion"]

# Of one output so many violations are looked at, to name the one that says most.
VIOLATIONS = 50


class Schema:
    """A compiled schema. `jsonschema` has the last word on what is broken; `quick` may say that nothing is."""

    def __init__(self, validator: Any, quick: fast.IsValid | None = None) -> None:
        self._validator = validator
        self._quick = quick

    def failing_keyword(self, value: object, exact: bool = True) -> str | None:
        """The keyword that a JSON value breaks, of a closed set; None when it satisfies the schema.

        `exact` says that its numbers are such as both validators hold exactly.
        """
        if exact and self._quick is not None and self._quick(value):
            return None
        violations = list(islice(self._validator.iter_errors(value), VIOLATIONS))
        if not violations:
            return None
        best = best_match(violations)
        keyword = None if best is None else best.validator
        return keyword if keyword in KEYWORDS else "other"


class UnusableSchemaError(Exception):
    """A schema that nothing can be judged by; `fault` says why."""

    def __init__(self, fault: SchemaFault) -> None:
        super().__init__(fault)
        self.fault = fault


def compile_schema(text: bytes, formats: bool = False) -> Schema:
    """A schema from its JSON text. Raises UnusableSchemaError.

    The draft is the one that `$schema` names, else 2020-12. What the draft's own schema refuses, and patterns that
    Python cannot read, are `schema_invalid`. References that lead out of the schema, except to the drafts themselves,
    are `schema_unresolvable`: nothing is ever fetched. References that lead back to where they start without going
    down into the value, and nesting too deep to follow, are `schema_recursion`.

    `format` asserts nothing unless `formats` is set; then those are asserted that the installed libraries know.
    """
    document = _parsed(text)
    draft = _draft(document)
    if isinstance(document, dict):
        # jsonschema would turn back to its own class of this draft wherever a reference leads to the root.
        document.pop("$schema", None)
    try:
        if draft.meta.failing_keyword(document) is not None:
            raise UnusableSchemaError("schema_invalid")
        checker = draft.validator.FORMAT_CHECKER if formats else None
        validator = draft.validator(document, registry=Registry(), format_checker=checker)
        quick = _quick(document, draft, formats)
    except UnusableSchemaError:
        raise
    except Unresolvable as error:
        raise UnusableSchemaError("schema_unresolvable") from error
    except RecursionError as error:
        raise UnusableSchemaError("schema_recursion") from error
    except MemoryError:
        raise
    except Exception as error:  # A reference led into a part that no draft's schema checks.
        raise UnusableSchemaError("schema_invalid") from error
    return Schema(validator, quick)


def _quick(document: object, draft: Draft, formats: bool = False) -> fast.IsValid | None:
    """The faster validator of a document, whose references are resolved on the way; raises what that raises."""
    applied = _applied(document, draft)
    if formats and any("format" in schema for schema in applied):
        return None
    return fast.validator(document, draft.name, applied, draft.validator.VALIDATORS)


def _parsed(text: bytes) -> object:
    try:
        decoded = text.decode()
        if json_text.is_deeper(decoded, json_text.DEPTH):
            raise UnusableSchemaError("schema_recursion")
        return json.loads(decoded)
    except RecursionError as error:
        raise UnusableSchemaError("schema_recursion") from error
    except ValueError as error:
        raise UnusableSchemaError("schema_invalid") from error


# ---------------------------------------------------------------- keywords that jsonschema reads otherwise


def _holds(pattern: str, text: str) -> bool:
    """Whether a pattern is found in a text: in linear time where that can be, else by Python."""
    matches = fast.matcher(pattern)
    found = None if matches is None else matches(text)
    return ecma.compiled(pattern).search(text) is not None if found is None else found


def _pattern(validator: Any, pattern: str, value: Any, _: Any) -> Iterator[ValidationError]:
    if validator.is_type(value, "string") and not _holds(pattern, value):
        yield ValidationError("pattern")


def _pattern_properties(validator: Any, patterns: Mapping[str, Any], value: Any, _: Any) -> Iterator[ValidationError]:
    if validator.is_type(value, "object"):
        for pattern, subschema in patterns.items():
            for key, member in value.items():
                if _holds(pattern, key):
                    yield from validator.descend(member, subschema, path=key, schema_path=pattern)


def _additional_properties(validator: Any, allowed: Any, value: Any, schema: Any) -> Iterator[ValidationError]:
    if not validator.is_type(value, "object"):
        return
    named = schema.get("properties", {})
    patterns = schema.get("patternProperties", ())
    for key, member in value.items():
        if key not in named and not any(_holds(pattern, key) for pattern in patterns):
            if allowed is False:
                yield ValidationError("additionalProperties")
                return
            yield from validator.descend(member, allowed, path=key)


def _multiple_of(validator: Any, divisor: float, value: Any, _: Any) -> Iterator[ValidationError]:
    # In decimal: 19.99 is a multiple of 0.01, which no division of binary floats says.
    if validator.is_type(value, "number") and _is_finite(value) and _exact(value) % _exact(divisor) != 0:
        yield ValidationError("multipleOf")


def _is_finite(value: float) -> bool:
    """Whether a number is one Python can hold: 1e999 is legal JSON, but not."""
    return isinstance(value, int) or isfinite(value)


def _exact(number: float) -> Fraction:
    return Fraction(number) if isinstance(number, int) else Fraction(Decimal(repr(number)))


def _unique_items(validator: Any, wanted: bool, value: Any, _: Any) -> Iterator[ValidationError]:
    # By hash, so that it costs no more than the length; jsonschema compares all with all where it cannot sort.
    if wanted and validator.is_type(value, "array") and len({_key(item) for item in value}) != len(value):
        yield ValidationError("uniqueItems")


def _key(value: Any) -> Any:
    """A hashable that is equal where JSON values are: 1 and 1.0 are, 1 and true are not, members have no order."""
    if isinstance(value, bool):
        return ("boolean", value)
    if isinstance(value, list):
        return ("array", tuple(_key(item) for item in value))
    if isinstance(value, dict):
        return ("object", frozenset((name, _key(member)) for name, member in value.items()))
    return value


_KINDS: dict[type, frozenset[str]] = {
    str: frozenset({"string"}),
    bool: frozenset({"boolean"}),
    int: frozenset({"integer", "number"}),
    dict: frozenset({"object"}),
    list: frozenset({"array"}),
    type(None): frozenset({"null"}),
}


def _type(validator: Any, wanted: str | list[str], value: Any, _: Any) -> Iterator[ValidationError]:
    names = (wanted,) if isinstance(wanted, str) else wanted
    if _KINDS.get(type(value), frozenset()).isdisjoint(names) and not any(
        map(partial(validator.is_type, value), names)
    ):
        yield ValidationError("type")


_OWN = {
    "type": _type,
    "pattern": _pattern,
    "patternProperties": _pattern_properties,
    "additionalProperties": _additional_properties,
    "multipleOf": _multiple_of,
    "uniqueItems": _unique_items,
}

# A subschema with one of these changes how others are resolved or which of its members count.
_CONTEXT = frozenset({"$id", "id", "$ref", "$schema"})


def _descending(stock: Callable[..., Iterator[ValidationError]]) -> Callable[..., Iterator[ValidationError]]:
    """jsonschema's way down, without a new validator for each subschema, which takes half of the time."""

    def descend(
        validator: Any,
        instance: Any,
        schema: Any,
        path: str | int | None = None,
        schema_path: str | int | None = None,
        resolver: Any = None,
    ) -> Iterator[ValidationError]:
        if resolver is not None or not isinstance(schema, dict) or not _CONTEXT.isdisjoint(schema):
            yield from stock(validator, instance, schema, path, schema_path, resolver)
            return
        keywords = validator.VALIDATORS
        for name, wanted in schema.items():
            if name not in keywords:
                continue
            for error in keywords[name](validator, wanted, instance, schema) or ():
                error._set(
                    validator=name,
                    validator_value=wanted,
                    instance=instance,
                    schema=schema,
                    type_checker=validator.TYPE_CHECKER,
                )
                if name != "if":
                    error.schema_path.appendleft(name)
                if path is not None:
                    error.path.appendleft(path)
                if schema_path is not None:
                    error.schema_path.appendleft(schema_path)
                yield error

    return descend


# ---------------------------------------------------------------- references

_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
# Keywords whose subschemas are applied to the same value.
_SAME_VALUE = ("not", "if", "then", "else")
_SAME_VALUE_LISTS = ("allOf", "anyOf", "oneOf")
_SAME_VALUE_MAPS = ("dependentSchemas", "dependencies")


def _applied(root: object, draft: Draft) -> list[dict[str, Any]]:
    """Every schema that is applied, boolean ones left out.

    Resolves every reference and compiles every pattern once; raises where one cannot be, or leads in a circle.
    """
    found: list[dict[str, Any]] = []
    resource = draft.specification.create_resource(root)
    todo: list[tuple[Any, Any]] = [(root, REGISTRY.resolver_with_root(resource))]
    applies: dict[int, list[int]] = {}  # by identity: the schemas that a schema applies to the same value
    while todo:
        schema, resolver = todo.pop()
        if isinstance(schema, bool) or id(schema) in applies:
            continue
        if not isinstance(schema, dict):
            raise UnusableSchemaError("schema_invalid")
        found.append(schema)
        keywords = _keywords(schema, draft)
        for pattern in _patterns(keywords):
            ecma.compiled(pattern)
        same: list[Any] = list(_applied_to_same_value(keywords))
        for name in _REFERENCES:
            if name in keywords:
                resolved = resolver.lookup(keywords[name])
                same.append(resolved.contents)
                todo.append((resolved.contents, resolved.resolver))
        applies[id(schema)] = [id(each) for each in same if isinstance(each, dict)]
        todo += (
            (child, resolver.in_subresource(draft.specification.create_resource(child)))
            for child in draft.specification.subresources_of(keywords)
        )
    if _has_circle(applies):
        raise UnusableSchemaError("schema_recursion")
    return found


def _keywords(schema: dict[str, Any], draft: Draft) -> dict[str, Any]:
    """The members that the draft acts on. Definitions are not among them: those that matter are referred to."""
    if draft.ref_stands_alone and "$ref" in schema:
        return {"$ref": schema["$ref"]}
    known = draft.validator.VALIDATORS
    branches = ("then", "else") if "if" in known else ()
    return {name: value for name, value in schema.items() if name in known or name in branches}


def _patterns(keywords: dict[str, Any]) -> Iterable[str]:
    if "pattern" in keywords:
        yield keywords["pattern"]
    yield from keywords.get("patternProperties", ())


def _applied_to_same_value(keywords: dict[str, Any]) -> Iterable[Any]:
    for name in _SAME_VALUE:
        if name in keywords:
            yield keywords[name]
    for name in _SAME_VALUE_LISTS:
        yield from keywords.get(name, ())
    for name in _SAME_VALUE_MAPS:
        yield from keywords.get(name, {}).values()


def _has_circle(edges: Mapping[int, list[int]]) -> bool:
    """Whether a directed graph has a circle; by Kahn's algorithm, without recursion."""
    incoming = dict.fromkeys(edges, 0)
    for targets in edges.values():
        for target in targets:
            incoming[target] = incoming.get(target, 0) + 1
    free = [node for node, count in incoming.items() if count == 0]
    seen = 0
    while free:
        node = free.pop()
        seen += 1
        for target in edges.get(node, ()):
            incoming[target] -= 1
            if incoming[target] == 0:
                free.append(target)
    return seen != len(incoming)


# ---------------------------------------------------------------- drafts


class Draft(Struct, frozen=True):
    name: str
    validator: Any  # jsonschema's class; its stubs name no type for it
    specification: Specification[Any]
    ref_stands_alone: bool  # `$ref` hides the keywords beside it
    meta: Schema  # the draft's own schema


def _made(name: str, stock: Any, specification: Specification[Any], ref_stands_alone: bool = False) -> Draft:
    made: Any = validators.extend(stock, _OWN)  # type: ignore[no-untyped-call]
    made.descend = _descending(made.descend)
    document = _in_one(stock.META_SCHEMA)
    plain = Schema(made(document, registry=Registry()))
    draft = Draft(name, made, specification, ref_stands_alone, plain)
    return replace(draft, meta=Schema(made(document, registry=Registry()), _quick(document, draft)))


def _in_one(meta: dict[str, Any]) -> dict[str, Any]:
    """A draft's own schema as one flat document: put together from its vocabularies it is seven times slower."""
    one: dict[str, Any] = {"properties": {}, "$defs": {}} | {
        name: meta[name] for name in meta if name not in ("$id", "$schema")
    }
    for vocabulary in one.pop("allOf", ()):
        part = REGISTRY.contents(urljoin(meta["$id"], vocabulary["$ref"]))
        one["properties"] = part.get("properties", {}) | one["properties"]
        one["$defs"] = part.get("$defs", {}) | one["$defs"]
    # With a single document, the dynamic references are plain ones to its root.
    text = json.dumps({name: one[name] for name in one if name not in ("$dynamicAnchor", "$recursiveAnchor")})
    text = re.sub(r'"\$(dynamicRef": "#meta|recursiveRef": "#)"', '"$ref": "#"', text)
    flat: dict[str, Any] = json.loads(re.sub(r'"\$ref": "meta/[a-z-]+#', '"$ref": "#', text))
    return flat


_NEWEST = _made("2020-12", validators.Draft202012Validator, drafts.DRAFT202012)
DRAFTS: dict[str, Draft] = {
    "json-schema.org/draft-04/schema": _made(
        "draft-04", validators.Draft4Validator, drafts.DRAFT4, ref_stands_alone=True
    ),
    "json-schema.org/draft-06/schema": _made(
        "draft-06", validators.Draft6Validator, drafts.DRAFT6, ref_stands_alone=True
    ),
    "json-schema.org/draft-07/schema": _made(
        "draft-07", validators.Draft7Validator, drafts.DRAFT7, ref_stands_alone=True
    ),
    "json-schema.org/draft/2019-09/schema": _made("2019-09", validators.Draft201909Validator, drafts.DRAFT201909),
    "json-schema.org/draft/2020-12/schema": _NEWEST,
    "json-schema.org/schema": _NEWEST,
}
KEYWORDS: frozenset[str] = frozenset(
    {"minContains", "maxContains"}.union(*(draft.validator.VALIDATORS for draft in DRAFTS.values()))
)


def _draft(document: object) -> Draft:
    named = document.get("$schema") if isinstance(document, dict) else None
    if named is None:
        return _NEWEST
    if not isinstance(named, str):
        raise UnusableSchemaError("schema_invalid")
    draft = DRAFTS.get(re.sub(r"\Ahttps?://", "", named.rstrip("#")))
    if draft is None:  # A dialect of someone's own, which would have to be fetched to be understood.
        raise UnusableSchemaError("schema_unresolvable")
    return draft
