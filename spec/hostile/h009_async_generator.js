async function* forever() { for (;;) yield 1 }
for await (const one of forever());
