let a = 1
type X = typeof a & { [k in `${string}-${(infer U)}`]: never }
let b = a as unknown as { x(): void } satisfies object
function f(this: any, x?: number): asserts x is number {}
abstract class C<in out T> { declare y: T; abstract z(): void; private constructor(public w?: T) {} static m<const K>(k: K): K { return k } }
return [a, C.m(3)]
