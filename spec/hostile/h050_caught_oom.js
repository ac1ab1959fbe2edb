let kept = []
for (let i = 0; ; i++) try { kept.push("x".repeat(1 << 20) + i) } catch { kept.length = Math.max(0, kept.length - 3) }
