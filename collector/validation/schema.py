"""JSON Schema as semhealth applies it: five drafts, `format` as annotation, nothing fetched, no endless references."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal
from fractions import Fraction
from itertools import islice
from math import isfinite
from typing import Any, Literal
from urllib.parse import urljoin

from jsonschema import validators
from jsonschema.exceptions import ValidationError, best_match
from jsonschema_specifications import REGISTRY
from msgspec import Struct
from referencing import Registry, Specification
from referencing import jsonschema as drafts
from referencing.exceptions import Unresolvable

from collector.validation import ecma, json_text

SchemaFault = Literal["schema_invalid", "schema_unresolvable", "schema_recursion"]

# Of one output so many violations are looked at, to name the one that says most.
VIOLATIONS = 50


class Schema:
    """A compiled schema."""

    def __init__(self, validator: Any) -> None:
        self._validator = validator

    def failing_keyword(self, value: object) -> str | None:
        """The keyword that a JSON value breaks, of a closed set; None when it satisfies the schema."""
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


def compile_schema(text: bytes) -> Schema:
    """A schema from its JSON text. Raises UnusableSchemaError.

    The draft is the one that `$schema` names, else 2020-12. What the draft's own schema refuses, and patterns that
    Python cannot read, are `schema_invalid`. References that lead out of the schema, except to the drafts themselves,
    are `schema_unresolvable`: nothing is ever fetched. References that lead back to where they start without going
    down into the value, and nesting too deep to follow, are `schema_recursion`.
    """
    document = _parsed(text)
    draft = _draft(document)
    if isinstance(document, dict):
        # jsonschema would turn back to its own class of this draft wherever a reference leads to the root.
        document.pop("$schema", None)
    try:
        # Without a format checker: which formats it knows depends on what else is installed.
        if not draft.meta.is_valid(document):
            raise UnusableSchemaError("schema_invalid")
        validator = draft.validator(document, registry=Registry())
        _check_references(document, draft)
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
    return Schema(validator)


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


def _pattern(validator: Any, pattern: str, value: Any, _: Any) -> Iterator[ValidationError]:
    if validator.is_type(value, "string") and ecma.compiled(pattern).search(value) is None:
        yield ValidationError("pattern")


def _pattern_properties(validator: Any, patterns: Mapping[str, Any], value: Any, _: Any) -> Iterator[ValidationError]:
    if validator.is_type(value, "object"):
        for pattern, subschema in patterns.items():
            search = ecma.compiled(pattern).search
            for key, member in value.items():
                if search(key) is not None:
                    yield from validator.descend(member, subschema, path=key, schema_path=pattern)


def _additional_properties(validator: Any, allowed: Any, value: Any, schema: Any) -> Iterator[ValidationError]:
    if not validator.is_type(value, "object"):
        return
    named = schema.get("properties", {})
    searches = [ecma.compiled(pattern).search for pattern in schema.get("patternProperties", {})]
    for key, member in value.items():
        if key not in named and not any(search(key) for search in searches):
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


_OWN = {
    "pattern": _pattern,
    "patternProperties": _pattern_properties,
    "additionalProperties": _additional_properties,
    "multipleOf": _multiple_of,
    "uniqueItems": _unique_items,
}

# ---------------------------------------------------------------- drafts


class Draft(Struct, frozen=True):
    validator: Any  # jsonschema's class; its stubs name no type for it
    meta: Any  # an instance of it, for the draft's own schema
    specification: Specification[Any]
    ref_stands_alone: bool  # `$ref` hides the keywords beside it


def _made(stock: Any, specification: Specification[Any], ref_stands_alone: bool) -> Draft:
    made = validators.extend(stock, _OWN)  # type: ignore[no-untyped-call]
    return Draft(made, made(_in_one(stock.META_SCHEMA), registry=Registry()), specification, ref_stands_alone)


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
    flat: dict[str, Any] = json.loads(re.sub(r'"\$(dynamicRef": "#meta|recursiveRef": "#)"', '"$ref": "#"', text))
    return flat


_NEWEST = _made(validators.Draft202012Validator, drafts.DRAFT202012, ref_stands_alone=False)
DRAFTS: dict[str, Draft] = {
    "json-schema.org/draft-04/schema": _made(validators.Draft4Validator, drafts.DRAFT4, ref_stands_alone=True),
    "json-schema.org/draft-06/schema": _made(validators.Draft6Validator, drafts.DRAFT6, ref_stands_alone=True),
    "json-schema.org/draft-07/schema": _made(validators.Draft7Validator, drafts.DRAFT7, ref_stands_alone=True),
    "json-schema.org/draft/2019-09/schema": _made(
        validators.Draft201909Validator, drafts.DRAFT201909, ref_stands_alone=False
    ),
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


# ---------------------------------------------------------------- references

_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
# Keywords whose subschemas are applied to the same value.
_SAME_VALUE = ("not", "if", "then", "else")
_SAME_VALUE_LISTS = ("allOf", "anyOf", "oneOf")
_SAME_VALUE_MAPS = ("dependentSchemas", "dependencies")


def _check_references(root: object, draft: Draft) -> None:
    """Resolves every reference and compiles every pattern once; raises where one cannot be, or leads in a circle."""
    resource = draft.specification.create_resource(root)
    todo: list[tuple[Any, Any]] = [(root, REGISTRY.resolver_with_root(resource))]
    applies: dict[int, list[int]] = {}  # by identity: the schemas that a schema applies to the same value
    while todo:
        schema, resolver = todo.pop()
        if isinstance(schema, bool) or id(schema) in applies:
            continue
        if not isinstance(schema, dict):
            raise UnusableSchemaError("schema_invalid")
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
