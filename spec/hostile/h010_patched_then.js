const then = Promise.prototype.then
let seen = 0
Promise.prototype.then = function (...args) { seen++; return apply(then, this, args) }
const apply = Reflect.apply
return (await tools.add({ a: 1, b: 2 })).sum
