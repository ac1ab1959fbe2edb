JSON.stringify = () => '{"forged":true}'
JSON.parse = () => { throw new Error("no") }
Array.prototype.push = () => { throw new Error("no") }
return await tools.echo({ a: 1 })
