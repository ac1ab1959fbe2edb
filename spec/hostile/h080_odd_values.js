json([NaN, -0, undefined, () => 1, new Map([[1, 2]]), new Date(0)])
return Symbol("s")
