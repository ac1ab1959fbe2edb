const o = { toString() { return "" + o } }
try { return "" + o } catch (e) { return e.name }
