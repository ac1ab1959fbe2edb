const tries = []
for (const depth of [10, 900, 1999, 1e6]) tries.push(await tools.deep({ depth }).then(() => "got", () => "refused"))
return tries
