try { (0, eval)("import fs from 'fs'"); return "loaded" } catch (e) { return e.name }
