"""Guard: checks the arguments of tool calls by rules. Standard library only."""
import fnmatch
import json
import re
import sys

REDACTED = "[redacted]"

# Kinds of secrets with a form of their own, so that ordinary text does not match.
SECRETS = {
    "private key": r"-----BEGIN (?:[A-Z]+ )*PRIVATE KEY-----(?:[\s\S]{0,10000}?-----END (?:[A-Z]+ )*PRIVATE KEY-----)?",
    "AWS access key": r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b",
    "GitHub token": r"\bgh[pousr]_[A-Za-z0-9]{36,255}\b|\bgithub_pat_[A-Za-z0-9_]{22,255}\b",
    "GitLab token": r"\bglpat-[A-Za-z0-9_-]{20,64}\b",
    "Slack token": r"\bxox[abprs]-[A-Za-z0-9-]{10,250}\b",
    "Google API key": r"\bAIza[0-9A-Za-z_-]{35}\b",
    "OpenAI or Anthropic key": r"\bsk-(?:ant-|proj-)?[A-Za-z0-9_-]{32,250}\b",
    "Stripe key": r"\b[rs]k_live_[0-9a-zA-Z]{20,250}\b",
}


class Rule:
    def __init__(self, name, pattern, action, tools=("*",), message=None):
        self.name, self.action, self.tools, self.message = name, action, tools, message
        self.pattern = re.compile(pattern)

    def applies_to(self, tool_id):
        return any(fnmatch.fnmatchcase(tool_id, glob) for glob in self.tools)

    def matches(self, value):
        return any(self.pattern.search(text) for text in texts(value))


def texts(value):
    """Returns all texts of a JSON value, keys included."""
    stack, found = [value], []
    while stack:
        part = stack.pop()
        if isinstance(part, str):
            found.append(part)
        elif isinstance(part, list):
            stack.extend(part)
        elif isinstance(part, dict):
            found.extend(part.keys())
            stack.extend(part.values())
    return found


def redact(value, rule):
    """Replaces what the rule matches in texts. A key that matches cannot be replaced without losing its field."""
    if isinstance(value, str):
        return rule.pattern.sub(REDACTED, value)
    if isinstance(value, list):
        return [redact(part, rule) for part in value]
    if isinstance(value, dict):
        return {key: redact(part, rule) for key, part in value.items()}
    return value


def read_rules(config):
    action = config.get("secrets", "block")
    rules = [] if action == "allow" else [Rule(name, pattern, action) for name, pattern in SECRETS.items()]
    for number, rule in enumerate(config.get("rules", []), 1):
        name = rule.get("message") or f"rule {number}"
        rules.append(Rule(name, rule["match"], rule["action"], rule.get("tools") or ["*"], rule.get("message")))
    return rules


def decide(event, rules):
    tool_id, params = event.get("toolId") or event["toolName"], event["params"]
    changed, ask = params, None
    for rule in rules:
        if not rule.applies_to(tool_id) or not rule.matches(changed):
            continue
        if rule.action == "redact":
            changed = redact(changed, rule)
        if rule.action == "block" or rule.matches(changed) and rule.action == "redact":
            return {"block": True, "blockReason": rule.message or f"the arguments contain a secret ({rule.name}); leave it out"}
        if rule.action == "ask":
            ask = ask or rule.message or f"the arguments contain a secret ({rule.name})"
    answer = {}
    if changed != params:
        answer["params"] = changed
    if ask:
        answer["requireApproval"] = ask
    return answer


def main():
    rules = []
    for line in sys.stdin:
        message = json.loads(line)
        method, params = message.get("method"), message.get("params", {})
        if method == "shutdown":
            return
        if "id" not in message:
            continue
        try:
            if method == "initialize":
                rules = read_rules(params["config"])
                result = {"protocolVersion": 1}
            elif method == "hooks/before_tool_call":
                result = decide(params, rules)
            elif method == "tools/call":
                text = params["input"]["text"]
                result = {"details": {"matches": [rule.name for rule in rules if rule.matches(text)]}}
            else:
                raise ValueError(f"unknown method {method}")
            answer = {"result": result}
        except (re.error, ValueError, KeyError, RecursionError) as error:
            answer = {"error": {"code": -32000, "message": f"{type(error).__name__}: {error}"}}
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": message["id"], **answer}) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
