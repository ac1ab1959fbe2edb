import type { A } from "fs"
return 1
