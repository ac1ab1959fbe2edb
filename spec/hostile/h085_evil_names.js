const out = [typeof tools.search, typeof tools.call, typeof tools.then, typeof tools.constructor, Object.getPrototypeOf(tools) === null]
const hits = await tools.search("issues")
return [...out, Array.isArray(hits), await tools.call("plugin:evil:then").then((r) => r.ran)]
