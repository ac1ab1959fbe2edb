class K { #p = 1; get p() { return this.#p } bump() { this.#p++ } }
function* g() { yield 1; yield 2; yield 3 }
const k = new K(), it = g(), key = {}, weak = new WeakMap([[key, "w"]]), s = Symbol("s"), re = /a/g, big = 2n ** 70n
it.next(); re.exec("aa")
const proxy = new Proxy({}, { get: (_, n) => n })
const view = new Float64Array([1.5, -0])
await yield_control()
k.bump()
return [k.p, it.next().value, weak.get(key), s.description, re.lastIndex, String(big), proxy.hello, view[0], Object.is(view[1], -0)]
