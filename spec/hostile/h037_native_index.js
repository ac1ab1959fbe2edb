const a = []
a.length = 2 ** 32 - 1
return [a.indexOf(1), a.includes(1), a.lastIndexOf(2)]
