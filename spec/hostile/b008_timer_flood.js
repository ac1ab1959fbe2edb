let fired = 0
for (let round = 0; round < 10; round++)
  await Promise.all(Array.from({ length: 900 }, () => new Promise((done) => setTimeout(() => { fired++; done() }, 0))))
return fired
