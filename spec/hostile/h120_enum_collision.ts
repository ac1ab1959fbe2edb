enum tools { call = 1 }
return typeof globalThis.tools.call
