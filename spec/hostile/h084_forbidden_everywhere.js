const described = await tools.describe("openclaw:test:forbidden").then(() => "told", () => "refused")
return [typeof tools.forbidden, "forbidden" in tools, described]
