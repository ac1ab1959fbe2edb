const s = "a b" // text("out")
return s.length
