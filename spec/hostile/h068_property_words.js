const o = { import: (x) => x, require: (x) => x }
return [o.import("a"), o?.require("b"), /import("x")/.source.length]
