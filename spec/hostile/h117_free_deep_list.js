let l = null
for (let i = 0; i < 3e5; i++) l = { l }
l = null
return "freed"
