return { get then() { throw new RangeError("from then") } }
