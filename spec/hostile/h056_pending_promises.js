const all = []
for (;;) all.push(new Promise(() => {}).then(() => all))
