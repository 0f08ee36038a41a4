"""The JSON Schema Test Suite: its required tests, kept here as one compressed file with its licence (MIT)."""

from __future__ import annotations

import json
import lzma
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

FILE = Path(__file__).with_name("json_schema_test_suite.json.xz")
DRAFTS = {
    "draft4": "http://json-schema.org/draft-04/schema#",
    "draft6": "http://json-schema.org/draft-06/schema#",
    "draft7": "http://json-schema.org/draft-07/schema#",
    "draft2019-09": "https://json-schema.org/draft/2019-09/schema",
    "draft2020-12": "https://json-schema.org/draft/2020-12/schema",
}
ELSEWHERE = "http://localhost:1234/"  # where the suite keeps documents that its schemas refer to


class Case(NamedTuple):
    """One required test: is `data` valid against `schema`, which is JSON text? `file` is the suite's own."""

    draft: str
    file: str
    description: str
    schema: bytes
    data: Any
    valid: bool

    @property
    def leads_out(self) -> bool:
        """Whether the schema refers to a document outside it, or is written in a dialect that one defines."""
        return self.file == "refRemote.json" or ELSEWHERE.encode() in self.schema


@cache
def told() -> dict[str, Any]:
    """The file's content: `source`, `licence`, and `drafts`, whose groups of tests are as the suite has them."""
    content: dict[str, Any] = json.loads(lzma.decompress(FILE.read_bytes()))
    return content


@cache
def cases(draft: str) -> list[Case]:
    found = []
    for file, groups in told()["drafts"][draft].items():
        for group in groups:
            schema = group["schema"]
            if isinstance(schema, dict) and "$schema" not in schema:
                schema = {"$schema": DRAFTS[draft], **schema}
            text = json.dumps(schema).encode()
            found += [
                Case(draft, file, f"{group['description']}: {test['description']}", text, test["data"], test["valid"])
                for test in group["tests"]
            ]
    return found
