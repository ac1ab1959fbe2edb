"""The check that schemathesis, which makes requests from `/openapi.json`, finds no response with a 5xx status."""

import re

from gateway import LAST_MESSAGE, TOKEN, serve
from model import Model
from pins import PEERS
from room import expect

REQUESTS_PER_OPERATION = 30
SECONDS = 600
# The check that no response has a 5xx status.
CHECK = "not_a_server_error"


def openapi(workspace):
    """A check: no operation of the gateway's API fails, whatever it is sent."""
    with Model(lambda _: False, {}, LAST_MESSAGE) as model:
        address = serve(workspace, model.address, "openai-completions")
        words = ["run", f"{address}/openapi.json", "--url", address, "--header", f"Authorization: Bearer {TOKEN}"]
        words += ["--checks", CHECK, "--max-examples", str(REQUESTS_PER_OPERATION), "--request-timeout", "20"]
        words += ["--phases", "examples,coverage,fuzzing", "--generation-deterministic", "--no-color"]
        said = workspace.run(PEERS / "python-schemathesis/bin/schemathesis", *words, seconds=SECONDS, may_fail=True)
        operations = re.search(r"Operations: +(\d+) selected", said)
        requests = re.search(r"(\d+) generated, (\d+) passed", said)
        expect(workspace.exit == 0 and operations and requests, f"schemathesis printed {said[-300:]}")
    return f"{requests.group(1)} requests to {operations.group(1)} operations, none answered with a 5xx status"
