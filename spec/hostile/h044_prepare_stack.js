let taken = []
try { Error.prepareStackTrace = (_, frames) => { taken = frames.map((f) => f.getFunction?.()); return "" } } catch {}
try { await tools.call(Symbol()) } catch (e) { void e.stack }
return taken.filter((f) => typeof f === "function").length
