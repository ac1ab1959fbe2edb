for (let i = 0; i < 40; i++) json(Array(60000).fill(0))
return Array(150000).fill(0).length
