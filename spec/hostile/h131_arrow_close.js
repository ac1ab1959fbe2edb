}, () => { text("out")
