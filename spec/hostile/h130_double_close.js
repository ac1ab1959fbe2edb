return 1 })(); (async () => { text("out")
