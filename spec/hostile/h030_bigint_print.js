let n = 3n
for (let i = 0; i < 21; i++) n *= n
return n.toString().length
