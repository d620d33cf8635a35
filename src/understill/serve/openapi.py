"""Describing: what each route answers, as OpenAPI and as a page that needs nothing from elsewhere."""

from __future__ import annotations

import json
from html import escape
from typing import Any

from understill.serve.middleware import OPEN
from understill.serve.schemas import Alive, Question, Ready, Refusal, Reply, TaskList
from understill.serve.settings import ServerSettings

_RETRY = {"Retry-After": {"description": "Seconds to wait before asking again.", "schema": {"type": "integer"}}}
_REFUSALS: dict[int, dict[str, Any]] = {
    401: {"model": Refusal, "description": "The server wants a key, and this is none."},
    408: {"model": Refusal, "description": "The body has not come in time."},
    413: {"model": Refusal, "description": "More rows, characters or bytes than one request may hold."},
    422: {"model": Refusal, "description": "The question cannot be answered as it is."},
    500: {"model": Refusal, "description": "The model failed; the server's log says more."},
    503: {"model": Refusal, "description": "Too many rows wait, or the model is being loaded.", "headers": _RETRY},
}


def _answers(answer: dict[str, Any], *refusals: int, **more: Any) -> dict[str, Any]:
    """Return what FastAPI is told of a route: its answer, and how it may refuse."""
    return {"responses": {200: answer, **{code: _REFUSALS[code] for code in refusals}}, **more}


_QUESTION = {"required": True, "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Question"}}}}

#: What FastAPI is told of each route.
ANSWERS: dict[str, dict[str, Any]] = {
    "/v1/predict": _answers(
        {"model": Reply, "description": "The answers."}, *_REFUSALS, openapi_extra={"requestBody": _QUESTION}
    ),
    "/v1/tasks": _answers({"model": TaskList, "description": "The tasks, and the limits."}, 401, 503),
    "/healthz": _answers({"model": Alive, "description": "The process is alive."}),
    "/readyz": {
        "responses": {
            200: {"model": Ready, "description": "Send requests."},
            503: {"model": Ready, "description": "Send none: the model is being loaded, or the server is to end."},
        }
    },
    "/metrics": _answers(
        {"description": "The numbers.", "content": {"text/plain": {"schema": {"type": "string"}}}}, 401
    ),
}


def describe(schema: dict[str, Any], settings: ServerSettings) -> dict[str, Any]:
    """Complete FastAPI's description with the question's form, this server's limits and whether it wants a key."""
    schema["info"]["description"] = "A model that answers for texts and pairs of texts."
    forms = schema["components"]["schemas"]
    forms["Question"] = Question.model_json_schema(ref_template="#/components/schemas/{model}")
    text = {"type": "string", "maxLength": settings.max_characters}
    several = {"type": "array", "items": text, "maxItems": settings.max_rows}
    keys = forms["Question"]["properties"]
    keys["texts"]["anyOf"], keys["pairs"]["anyOf"] = [text, several], [text, several, {"type": "null"}]
    keys["top_k"]["default"] = settings.top_k
    if settings.keys:
        schema["components"]["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
        for path, ways in schema["paths"].items():
            if path not in OPEN:
                for operation in ways.values():
                    operation["security"] = [{"key": []}]
    return schema


def page_of(schema: dict[str, Any], address: str) -> str:
    """Return the description as a page, for those who have found it at an address."""
    routes = [
        _route(method.upper(), path, operation)
        for path, ways in schema["paths"].items()
        for method, operation in ways.items()
    ]
    # What is sent stands first, and then what comes back.
    named = sorted(schema["components"]["schemas"].items(), key=lambda each: each[0] != "Question")
    forms = [_form(name, form) for name, form in named]
    key = "" if "securitySchemes" not in schema["components"] else ' -H "Authorization: Bearer KEY"'
    return _PAGE.format(address=escape(address), key=key, routes="\n".join(routes), forms="\n".join(forms))


def _route(method: str, path: str, operation: dict[str, Any]) -> str:
    rows = [
        f"<tr><td>{status}</td><td>{escape(answer['description'])}</td><td>{_content(answer)}</td></tr>"
        for status, answer in operation["responses"].items()
    ]
    asked = f"<p>Send {_content(operation['requestBody'])}.</p>" if "requestBody" in operation else ""
    key = "<p>Needs a key, in the header <code>Authorization: Bearer KEY</code>.</p>" if "security" in operation else ""
    table = f"<table><tr><th>status</th><th>when</th><th>body</th></tr>{''.join(rows)}</table>"
    said = f"<p>{escape(operation['description'])}</p>{asked}{key}"
    return f"<section><h2><code>{method} {path}</code></h2>{said}{table}</section>"


def _content(part: dict[str, Any]) -> str:
    return ", ".join(_type(body["schema"]) for body in part.get("content", {}).values())


def _form(name: str, form: dict[str, Any]) -> str:
    told = [
        (escape(key), _type(facts), escape(facts.get("description", "")))
        for key, facts in form.get("properties", {}).items()
    ]
    rows = [f"<tr><td><code>{key}</code></td><td>{kind}</td><td>{what}</td></tr>" for key, kind, what in told]
    examples = "".join(f"<pre>{escape(json.dumps(each))}</pre>" for each in form.get("examples", []))
    table = f"<table><tr><th>key</th><th>type</th><th>what it is</th></tr>{''.join(rows)}</table>"
    return (
        f'<section><h3 id="{name}">{name}</h3><p>{escape(form.get("description", ""))}</p>{table}{examples}</section>'
    )


def _type(facts: dict[str, Any]) -> str:
    """Put a type into words, with links to the forms it names."""
    if "$ref" in facts:
        name = facts["$ref"].rpartition("/")[2]
        return f'<a href="#{name}">{name}</a>'
    if "anyOf" in facts:
        return " or ".join(_type(each) for each in facts["anyOf"])
    if "const" in facts or "enum" in facts:
        return " or ".join(escape(json.dumps(each)) for each in facts.get("enum", [facts.get("const")]))
    if facts.get("type") == "array":
        inner = facts.get("items") or {"anyOf": facts.get("prefixItems", [{}])[:1]}
        return f"list of {_type(inner)}"
    if facts.get("type") == "object" and "additionalProperties" in facts:
        return f"object of {_type(facts['additionalProperties'])}"
    return escape(str(facts.get("type", "anything")))


_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>understill: what can be asked</title>
<link rel="stylesheet" href="page/docs.css">
<link rel="icon" href="page/icon.svg">
</head>
<body>
<main>
<h1>What can be asked</h1>
<p>The same for programs: <a href="openapi.json">openapi.json</a>. To try the model: <a href=".">the page</a>.</p>
<h2>For a start</h2>
<pre>curl {address}v1/predict{key} -H "Content-Type: application/json" -d '{{"texts": "Where is it?"}}'</pre>
{routes}
<h2>Forms</h2>
{forms}
</main>
</body>
</html>
"""
