return (await tools.big({ bytes: 4 << 20 })).length
