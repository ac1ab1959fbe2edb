const tries = [tools.hookblocked({}), tools.call("openclaw:test:hookblocked", { force: true })]
return (await Promise.allSettled(tries)).map((r) => r.status)
