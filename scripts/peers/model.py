"""A scripted model on loopback: it calls one tool, then answers with one sentence.

It implements OpenAI's chat completions and responses and Anthropic's messages, streamed or not, and records every
request, so that a check can examine which tools the agent showed and which results it sent back.
"""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

MAX_BODY_BYTES = 16 << 20
USAGE = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}


class Model:
    """A server that runs until it is closed. `requests` has the tools and tool results of every request, in order, and
    `bodies` has the requests as they were sent."""

    def __init__(self, pick, arguments, last_message):
        self.pick, self.arguments, self.last_message = pick, arguments, last_message
        self.requests, self.bodies = [], []
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), type("Bound", (Handler,), {"model": self}))
        self.server.daemon_threads = True
        self.address = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()

    def decide(self, path, tools, results):
        """Returns the name of the tool to call now, or `None` to answer with the last message.

        `tools` has the description and the schema of each tool, by name."""
        self.requests.append({"path": path, "tools": tools, "results": results})
        return None if results else next((name for name in tools if self.pick(name)), None)

    def shown(self):
        """Returns every tool that any request showed, by name, as the first request with it showed it."""
        return {name: tool for request in reversed(self.requests) for name, tool in request["tools"].items()}

    def results(self):
        """Returns every tool result that any request contained, as text."""
        return [result for request in self.requests for result in request["results"]]


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    model = None

    def log_message(self, *_):
        pass

    def do_HEAD(self):
        self.answer({})

    def do_GET(self):
        self.answer({"object": "list", "data": [{"id": "scripted", "object": "model"}], "models": []})

    def do_POST(self):
        length = min(int(self.headers.get("content-length") or 0), MAX_BODY_BYTES)
        try:
            body = json.loads(self.rfile.read(length))
        except ValueError:
            return self.answer({"error": {"message": "the body is not JSON"}}, 400)
        self.model.bodies.append(body)
        path = self.path.split("?")[0]
        for end, handle in (("/chat/completions", self.answer_chat), ("/responses", self.answer_responses), ("/messages", self.answer_messages)):
            if path.endswith(end):
                return handle(path, body)
        if path.endswith("/count_tokens"):
            return self.answer({"input_tokens": 1})
        self.answer({"error": {"message": f"unknown path {path}"}}, 404)

    def answer_chat(self, path, body):
        tools = {tool["function"]["name"]: described(tool["function"]) for tool in body.get("tools") or [] if "function" in tool}
        results = [as_text(message["content"]) for message in body["messages"] if message["role"] == "tool"]
        tool = self.model.decide(path, tools, results)
        message, reason = {"role": "assistant", "content": self.model.last_message}, "stop"
        if tool:
            function = {"name": tool, "arguments": json.dumps(self.model.arguments)}
            call = {"id": numbered("call", results), "type": "function", "function": function}
            message = {"role": "assistant", "content": None, "tool_calls": [call]}
            reason = "tool_calls"
        base = {"id": "chat_1", "created": 1, "model": "scripted"}
        if not body.get("stream"):
            choice = {"index": 0, "message": message, "finish_reason": reason}
            return self.answer({**base, "object": "chat.completion", "choices": [choice], "usage": USAGE})
        for index, call in enumerate(message.get("tool_calls", [])):
            call["index"] = index
        base["object"] = "chat.completion.chunk"
        first = {**base, "choices": [{"index": 0, "delta": message, "finish_reason": None}]}
        last = {**base, "choices": [{"index": 0, "delta": {}, "finish_reason": reason}], "usage": USAGE}
        self.stream([(None, first), (None, last), (None, "[DONE]")])

    def answer_responses(self, path, body):
        tools, places = {}, {}
        for tool in body.get("tools") or []:
            # Codex puts the tools of each server into a namespace.
            for inner in tool.get("tools", []) if tool.get("type") == "namespace" else []:
                name = f"{tool['name']}::{inner['name']}"
                tools[name] = described(inner)
                places[name] = {"namespace": tool["name"], "name": inner["name"]}
            if tool.get("type") != "namespace":
                tools[tool.get("name") or tool.get("type")] = described(tool)
        items = body["input"] if isinstance(body["input"], list) else []
        outputs = ("function_call_output", "custom_tool_call_output")
        results = [as_text(item.get("output")) for item in items if item.get("type") in outputs]
        tool = self.model.decide(path, tools, results)
        if tool:
            call = {"type": "function_call", "id": "fc_1", "call_id": numbered("call", results), "status": "completed"}
            item = {**call, "name": tool, "arguments": json.dumps(self.model.arguments), **places.get(tool, {})}
        else:
            content = {"type": "output_text", "text": self.model.last_message, "annotations": []}
            item = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [content]}
        usage = {"input_tokens": 1, "input_tokens_details": {"cached_tokens": 0}, "output_tokens": 1}
        usage = {**usage, "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": 2}
        whole = {"id": "resp_1", "object": "response", "created_at": 1, "model": "scripted", "status": "completed"}
        whole = {**whole, "output": [item], "usage": usage, "error": None, "tools": [], "metadata": {}}
        if not body.get("stream"):
            return self.answer(whole)
        begun = {**whole, "status": "in_progress", "output": []}
        self.stream(named([
            {"type": "response.created", "response": begun},
            {"type": "response.output_item.added", "output_index": 0, "item": item},
            {"type": "response.output_item.done", "output_index": 0, "item": item},
            {"type": "response.completed", "response": whole},
        ]))

    def answer_messages(self, path, body):
        tools = {tool["name"]: described(tool) for tool in body.get("tools") or []}
        blocks = [block for message in body["messages"] if isinstance(message["content"], list) for block in message["content"]]
        results = [as_text(block.get("content")) for block in blocks if block.get("type") == "tool_result"]
        tool = self.model.decide(path, tools, results)
        text = {"type": "text", "text": self.model.last_message}
        block = {"type": "tool_use", "id": numbered("toolu", results), "name": tool, "input": self.model.arguments} if tool else text
        reason = "tool_use" if tool else "end_turn"
        whole = {"id": "msg_1", "type": "message", "role": "assistant", "model": body["model"], "content": [block]}
        whole = {**whole, "stop_reason": reason, "stop_sequence": None, "usage": {"input_tokens": 1, "output_tokens": 1}}
        if not body.get("stream"):
            return self.answer(whole)
        begun = {**block, "input": {}} if tool else {**block, "text": ""}
        delta = {"type": "text_delta", "text": self.model.last_message}
        if tool:
            delta = {"type": "input_json_delta", "partial_json": json.dumps(self.model.arguments)}
        self.stream(named([
            {"type": "message_start", "message": {**whole, "content": [], "stop_reason": None}},
            {"type": "content_block_start", "index": 0, "content_block": begun},
            {"type": "content_block_delta", "index": 0, "delta": delta},
            {"type": "content_block_stop", "index": 0},
            {"type": "message_delta", "delta": {"stop_reason": reason, "stop_sequence": None}, "usage": {"output_tokens": 1}},
            {"type": "message_stop"},
        ]))

    def answer(self, value, status=200):
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def stream(self, events):
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("connection", "close")
        self.end_headers()
        for name, data in events:
            head = f"event: {name}\n" if name else ""
            data = data if isinstance(data, str) else json.dumps(data)
            self.wfile.write(f"{head}data: {data}\n\n".encode())
        self.close_connection = True


def numbered(prefix, results):
    """Returns the id of the next call in a conversation that has these results."""
    return f"{prefix}_{len(results) + 1}"


def described(tool):
    """Returns what a request says about a tool. Each interface has its own name for the schema."""
    schema = next((tool[name] for name in ("input_schema", "parameters") if name in tool), None)
    return {"description": tool.get("description"), "schema": schema}


def named(events):
    return [(event["type"], {**event, "sequence_number": number}) for number, event in enumerate(events)]


def as_text(content):
    """Returns the text that a model reads of a result, for each shape that clients send."""
    if isinstance(content, str):
        # The AI SDK writes a list of blocks as text.
        return as_text(json.loads(content)) if content.startswith('[{"type"') else content
    if isinstance(content, list):
        return "\n".join(block.get("text", "") if isinstance(block, dict) else str(block) for block in content)
    return json.dumps(content)
