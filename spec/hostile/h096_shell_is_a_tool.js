return [(await tools.exec({ command: "id" })).ran, await tools.call("openclaw:core:wait", {}).catch(() => "refused"), await tools.call("exec", {}).catch(() => "refused")]
