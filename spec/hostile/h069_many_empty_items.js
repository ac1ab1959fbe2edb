for (let i = 0; i < 1e6; i++) text("")
return 1
