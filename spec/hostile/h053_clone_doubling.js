let a = [new Uint8Array(1 << 16)]
for (;;) a = [structuredClone(a), structuredClone(a)]
