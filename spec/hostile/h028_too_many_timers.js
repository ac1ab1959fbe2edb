let made = 0
try { for (;;) { setTimeout(() => {}, 1e9); made++ } } catch (e) { return [made, e instanceof Error] }
