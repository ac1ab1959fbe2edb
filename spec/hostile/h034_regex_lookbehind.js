return /^(?:(a|ab)(c|bcd)(d*))+$(?<!x)/.test("abcd".repeat(30) + "!") || /(x+x+)+y/.test("x".repeat(60))
