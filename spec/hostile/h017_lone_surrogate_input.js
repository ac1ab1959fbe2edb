const { s } = await tools.echo({ s: "a\ud800b" })
return [s.length, s[0], s[2]]
