const id = <T,>(x: T): T => x
const two = async <A extends number, B = A>(a: A, b?: B) => a
return [id(1), await two(2), id<string>("3")]
