try { return Math.max.apply(null, { length: 1e6 }) } catch { return "threw" }
