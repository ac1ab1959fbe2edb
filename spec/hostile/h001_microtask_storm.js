const ping = () => Promise.resolve().then(pong)
const pong = () => Promise.resolve().then(ping)
ping()
await new Promise(() => {})
