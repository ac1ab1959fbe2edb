try { await new Function("return import('fs')")(); return "loaded" } catch { return "refused" }
