const out = [Object.keys(Issues), typeof Issues.list_issues, typeof Issues.constructor, Object.isFrozen(Issues), namespaces.Issues === Issues]
try { Issues.list = () => "fake" } catch {}
return [...out, (await Issues.list())[0].number]
