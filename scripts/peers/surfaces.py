"""Checks with third-party clients of the surfaces other than code mode: Tool Search in both modes, and direct tools."""

import json

from pins import PEERS
from room import expect
from upstream import everything

SUM = {"a": 20, "b": 22}
ANSWER = "The sum of 20 and 22 is 42."
SUM_ID = "mcp:everything:get-sum"
DENIED_ID = "mcp:everything:get-env"
SEARCH_CELL = f"""const hits = await openclaw.tools.search("add two numbers", {{ limit: 5 }});
const tool = await openclaw.tools.describe("{SUM_ID}");
console.log(hits.length, hits.some((hit) => hit.id === tool.id), Object.keys(tool.parameters.properties).join());
return (await openclaw.tools.call(tool.id, {json.dumps(SUM)})).content[0].text;"""
DENIED_CELL = f"""const hits = await openclaw.tools.search("environment variables", {{ limit: 20 }});
try {{ await openclaw.tools.call("{DENIED_ID}", {{}}); return "called"; }}
catch (error) {{ return [hits.some((hit) => hit.id === "{DENIED_ID}"), error.message]; }}"""


def configured(workspace, name, tools, ask="never"):
    """A configuration with one server, one of whose tools is denied."""
    tools = {"deny": ["get-env"], **tools}
    return workspace.config({"everything": everything(workspace)}, name=f"{name}.json5", ask=ask, tools=tools)


def server(workspace, config, *more):
    return [*workspace.stdio(config), *more]


def drive(workspace, command, calls, **env):
    """Lists the tools and makes the calls with the Python SDK's client."""
    python = [PEERS / "python-mcp/bin/python", workspace.drives / "surfaces_client.py", json.dumps(calls)]
    return json.loads(workspace.run(*python, *command, env=workspace.environment(**env)))


def names(seen):
    return [tool["name"] for tool in seen["tools"]]


def answer(result):
    """Returns the answer of a Tool Search tool, after checking that text and structured content are the same."""
    value = json.loads(result["content"][0]["text"])
    if isinstance(value, dict):
        expect(result["structuredContent"] == value, "text and structured content differ")
    return value


def telemetry(result):
    return result["_meta"]["cellmate/telemetry"]


def search_with_code(workspace):
    config = configured(workspace, "search-code", {"toolSearch": True})
    seen = drive(workspace, server(workspace, config), [["tool_search_code", {"code": cell}] for cell in (SEARCH_CELL, DENIED_CELL)])
    expect(names(seen) == ["tool_search_code"], f"the client was shown {names(seen)}")
    found, denied = map(answer, seen["results"])
    expect(found["ok"] and found["value"] == ANSWER, f"the client received {found}")
    number, *rest = found["logs"][0].split(" ")
    expect(1 <= int(number) <= 5 and rest == ["true", "a,b"], f"the program logged {found['logs']}")
    expect(denied["value"][0] is False and "get-env" in denied["value"][1], f"a denied tool: {denied}")
    counted = telemetry(seen["results"][0])
    expect([counted[key] for key in ("searchCount", "describeCount", "callCount")] == [1, 1, 1], f"telemetry: {counted}")
    expect(counted["selectedTools"] == [{"id": SUM_ID, "source": "mcp"}], f"telemetry: {counted}")
    expect(counted["visibleTools"] == ["tool_search_code"] and counted["catalogSize"] > 5, f"telemetry: {counted}")
    return seen


def search_with_tools(workspace):
    config = configured(workspace, "search-tools", {"toolSearch": {"mode": "tools", "maxSearchLimit": 20}}, ask="changes")
    calls = [
        ["tool_search", {"query": "add two numbers", "limit": 3}],
        ["tool_describe", {"id": SUM_ID}],
        ["tool_call", {"id": SUM_ID, "args": SUM}],
        ["tool_call", {"id": DENIED_ID}],
    ]
    seen = drive(workspace, server(workspace, config), calls, FORM_ANSWER="approve once")
    expect(names(seen) == ["tool_search", "tool_describe", "tool_call"], f"the client was shown {names(seen)}")
    hits, tool, called, denied = map(answer, seen["results"])
    expect(len(hits) == 3 and SUM_ID in [hit["id"] for hit in hits], f"the search found {hits}")
    expect(set(tool["parameters"]["properties"]) == {"a", "b"}, f"described: {tool}")
    expect(called["result"]["content"][0]["text"] == ANSWER and called["tool"]["id"] == SUM_ID, f"called: {called}")
    expect(denied["ok"] is False and "get-env" in denied["error"], f"a denied tool: {denied}")
    expect(seen["forms"] == 1, f"{seen['forms']} forms were shown")
    refused = drive(workspace, server(workspace, config), calls[2:3], FORM_ANSWER="deny")
    blocked = answer(refused["results"][0])
    expect(blocked["ok"] is False and "denied" in blocked["error"], f"a denied approval: {blocked}")
    return seen


def direct(workspace):
    config = configured(workspace, "direct", {"codeMode": False}, ask="changes")
    seen = drive(workspace, server(workspace, config), [["everything__get-sum", SUM], ["everything__get-tiny-image", {}]], FORM_ANSWER="approve once")
    expect("everything__get-sum" in names(seen) and "everything__get-env" not in names(seen), f"the client was shown {names(seen)}")
    summed, image = seen["results"]
    expect(summed["content"][0]["text"] == ANSWER, f"the client received {summed}")
    expect("image" in [block["type"] for block in image["content"]], f"an image: {str(image)[:300]}")
    expect(telemetry(summed)["surface"]["surface"] == "direct", f"telemetry: {telemetry(summed)}")
    expect(seen["forms"] == 2, f"{seen['forms']} forms were shown")
    return seen


def python_mcp(workspace):
    """All three surfaces with the Python SDK, whose client checks results against output schemas."""
    sizes = [len(json.dumps(check(workspace)["tools"])) for check in (search_with_code, search_with_tools, direct)]
    expect(max(sizes[:2]) < sizes[2], f"tool definitions of Tool Search and of direct tools take {sizes} bytes")
    return f"Tool Search in both modes and direct tools; definitions take {sizes[0]}, {sizes[1]} and {sizes[2]} bytes"


def inspector(workspace):
    """Each surface with the Inspector, selected by the flag."""
    from clients import bin_of

    start = "@modelcontextprotocol/inspector/" + bin_of("inspector", "@modelcontextprotocol/inspector", "mcp-inspector")
    config = configured(workspace, "flags", {})
    modes = configured(workspace, "flags-tools", {"toolSearch": {"mode": "tools"}})

    def ask(config, surface, *method):
        command = server(workspace, config, "--surface", surface)
        return json.loads(workspace.node("inspector", start, "--cli", *method, "--", *command))

    def call(config, surface, tool, **arguments):
        given = [word for name, value in arguments.items() for word in ("--tool-arg", f"{name}={value}")]
        return ask(config, surface, "--method", "tools/call", "--tool-name", tool, *given)

    for config_, surface, expected in ((config, "search", ["tool_search_code"]), (modes, "search", ["tool_search", "tool_describe", "tool_call"])):
        listed = [tool["name"] for tool in ask(config_, surface, "--method", "tools/list", "--strict")["tools"]]
        expect(listed == expected, f"--surface {surface} shows {listed}")
    listed = [tool["name"] for tool in ask(config, "direct", "--method", "tools/list", "--strict")["tools"]]
    expect("everything__get-sum" in listed and "exec" not in listed, f"--surface direct shows {listed}")
    found = answer(call(config, "search", "tool_search_code", code=SEARCH_CELL))
    expect(found["value"] == ANSWER, f"the client received {found}")
    hits = answer(call(modes, "search", "tool_search", query="add two numbers"))
    expect(SUM_ID in [hit["id"] for hit in hits], f"the search found {hits}")
    described = answer(call(modes, "search", "tool_describe", id=SUM_ID))
    expect("a" in described["parameters"]["properties"], f"described: {described}")
    called = answer(call(modes, "search", "tool_call", id=SUM_ID, args=json.dumps(SUM)))
    expect(called["result"]["content"][0]["text"] == ANSWER, f"called: {called}")
    summed = call(config, "direct", "everything__get-sum", **SUM)
    expect(summed["content"][0]["text"] == ANSWER, f"the client received {summed}")
    return "tool_search_code; tool_search, tool_describe, tool_call; direct tools"


def mcporter(workspace):
    """Direct tools and the three tools of Tool Search with mcporter, which calls tools by name."""
    from clients import bin_of

    start = "mcporter/" + bin_of("mcporter", "mcporter", "mcporter")
    servers = {}
    for name, surface, tools in (("direct", "direct", {}), ("search", "search", {"toolSearch": {"mode": "tools"}})):
        command, *arguments = server(workspace, configured(workspace, name, tools), "--surface", surface)
        servers[name] = {"command": command, "args": arguments}
    config = workspace.folder / "mcporter-surfaces.json"
    config.write_text(json.dumps({"mcpServers": servers, "imports": []}))
    run = lambda *words: json.loads(workspace.node("mcporter", start, "--config", config, *words))
    listed = [tool["name"] for tool in run("list", "search", "--json")["tools"]]
    expect(listed == ["tool_search", "tool_describe", "tool_call"], f"the client was shown {listed}")
    summed = run("call", "direct.everything__get-sum", "--args", json.dumps(SUM), "--output", "json")
    expect(ANSWER in json.dumps(summed), f"the client received {summed}")
    called = run("call", "search.tool_call", "--args", json.dumps({"id": SUM_ID, "args": SUM}), "--output", "json")
    expect(ANSWER in json.dumps(called), f"the client received {called}")
    return "direct tools and tool_call"


# Name: bundle, the package whose version is printed, the check.
SURFACES = {
    "surfaces/python-mcp": ("python-mcp", "mcp", python_mcp),
    "surfaces/inspector": ("inspector", "@modelcontextprotocol/inspector", inspector),
    "surfaces/mcporter": ("mcporter", "mcporter", mcporter),
}
