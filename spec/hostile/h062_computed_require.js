const name = ["req", "uire"].join("")
return typeof globalThis[name]
