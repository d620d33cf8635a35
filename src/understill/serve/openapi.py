"""OpenAPI: what each route answers, for programs, and as a page that fetches nothing from elsewhere."""

from __future__ import annotations

import json
from html import escape
from pathlib import Path
from string import Template
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from understill.serve.middleware import OPEN
from understill.serve.schemas import Question, Refusal, Reply, Status, TaskList
from understill.serve.settings import ServerSettings

PAGE = Path(__file__).parent / "page" / "docs.html"

_REFUSALS = {
    401: "The server wants a key, and this is none.",
    408: "The request body did not arrive in time.",
    413: "More rows, characters or bytes than one request may hold.",
    421: "The server is not asked by this name.",
    422: "The question cannot be answered as it is.",
    431: "The headers are too many, or too long.",
    500: "The model failed; the server's log says more.",
    503: "Too many rows, large requests or connections, or it is loading; Retry-After has the seconds to wait.",
}
#: Of each route what it is for, its answer, and the statuses with which it may refuse.
_ROUTES: dict[str, tuple[str, type[BaseModel] | None, tuple[int, ...]]] = {
    "/v1/predict": ("Answer for texts, or for pairs of texts.", Reply, tuple(_REFUSALS)),
    "/v1/tasks": ("Tell which tasks the model has, and how much one request may hold.", TaskList, (401, 421, 503)),
    "/healthz": ("Tell that the process is alive.", Status, ()),
    "/readyz": ("Tell by 200 or 503 whether to send requests here: not while it loads or drains.", Status, (503,)),
    "/metrics": ("Give the metrics of all workers, as Prometheus reads them.", None, (401, 421)),
}


def openapi_schema(settings: ServerSettings) -> dict[str, Any]:
    """Describe the routes, with this server's limits and whether it wants a key."""
    models: list[type[BaseModel]] = [Question, Reply, TaskList, Status, Refusal]
    template = "#/components/schemas/{model}"
    schemas = models_json_schema([(model, "validation") for model in models], ref_template=template)[1]["$defs"]
    text = {"type": "string", "maxLength": settings.max_characters}
    several = {"type": "array", "items": text, "maxItems": settings.max_rows}
    keys = schemas["Question"]["properties"]
    keys["texts"]["anyOf"], keys["pairs"]["anyOf"] = [text, several], [text, several, {"type": "null"}]
    keys["top_k"]["default"] = settings.top_k
    security = {"securitySchemes": {"key": {"type": "http", "scheme": "bearer"}}} if settings.keys else {}
    about = "A model that answers for texts and pairs of texts."
    return {
        "openapi": "3.1.0",
        "info": {"title": "understill", "version": "1", "description": about},
        "paths": {path: _operations(path, bool(settings.keys)) for path in _ROUTES},
        "components": {"schemas": schemas, **security},
    }


def _operations(path: str, keys: bool) -> dict[str, Any]:
    description, model, refusals = _ROUTES[path]
    content = _json(model) if model else {"text/plain": {"schema": {"type": "string"}}}
    responses = {"200": {"description": "The answer.", "content": content}}
    for status in refusals:
        refusal = Status if path == "/readyz" else Refusal
        responses[str(status)] = {"description": _REFUSALS[status], "content": _json(refusal)}
    operation: dict[str, Any] = {"description": description, "responses": responses}
    if keys and path not in OPEN:
        operation["security"] = [{"key": []}]
    if path != "/v1/predict":
        return {"get": operation}
    return {"post": operation | {"requestBody": {"required": True, "content": _json(Question)}}}


def _json(model: type[BaseModel]) -> dict[str, Any]:
    return {"application/json": {"schema": {"$ref": f"#/components/schemas/{model.__name__}"}}}


def docs_page(schema: dict[str, Any], address: str) -> str:
    """Return the description as a page, whose first command asks the server at an address."""
    routes, schemas = [], []
    for path, operations in schema["paths"].items():
        for method, operation in operations.items():
            body = f"<p>Send {_content(operation['requestBody'])}.</p>" if "requestBody" in operation else ""
            key = "<p>Needs the header <code>Authorization: Bearer KEY</code>.</p>" if "security" in operation else ""
            responses = operation["responses"].items()
            rows = [(status, escape(each["description"]), _content(each)) for status, each in responses]
            head = f"<h2><code>{method.upper()} {path}</code></h2><p>{escape(operation['description'])}</p>{body}{key}"
            routes.append(_section(head, ("status", "when", "body"), *rows))
    # What is sent stands first, and then what comes back.
    for name, each in sorted(schema["components"]["schemas"].items(), key=lambda named: named[0] != "Question"):
        properties = each["properties"].items()
        rows = [(f"<code>{key}</code>", _type(it), escape(it.get("description", ""))) for key, it in properties]
        examples = "".join(f"<pre>{escape(json.dumps(example))}</pre>" for example in each.get("examples", []))
        head = f'<h3 id="{name}">{name}</h3><p>{escape(each["description"])}</p>{examples}'
        schemas.append(_section(head, ("key", "type", "what it is"), *rows))
    key = ' -H "Authorization: Bearer KEY"' if "securitySchemes" in schema["components"] else ""
    return Template(PAGE.read_text(encoding="utf-8")).substitute(
        address=escape(address), key=key, routes="\n".join(routes), schemas="\n".join(schemas)
    )


def _section(head: str, *rows: tuple[str, ...]) -> str:
    """Return a section with a table, whose first row names the columns."""
    table = ["".join(f"<td>{cell}</td>" for cell in row) for row in rows]
    table[0] = table[0].replace("td>", "th>")
    return f"<section>{head}<table>{''.join(f'<tr>{row}</tr>' for row in table)}</table></section>"


def _content(part: dict[str, Any]) -> str:
    return ", ".join(_type(body["schema"]) for body in part["content"].values())


def _type(facts: dict[str, Any]) -> str:
    """Put a JSON Schema type into words, with links to the schemas it names."""
    match facts:
        case {"$ref": path}:
            name = path.rpartition("/")[2]
            return f'<a href="#{name}">{name}</a>'
        case {"anyOf": choices}:
            return " or ".join(_type(each) for each in choices)
        case {"enum": values}:
            return " or ".join(escape(json.dumps(each)) for each in values)
        case {"type": "array"}:
            return f"list of {_type(facts.get('items') or facts['prefixItems'][0])}"
        case {"type": "object", "additionalProperties": inner}:
            return f"object of {_type(inner)}"
    return escape(str(facts.get("type", "anything")))
