text("a\ud800")
json({ s: "b\udfff" })
console.log("c\ud83d")
return "d\ud800e"
