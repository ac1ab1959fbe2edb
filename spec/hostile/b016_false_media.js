const refused = (make) => { try { make(); return "accepted" } catch (e) { return e.code } }
const bad = ["?".repeat(1 << 10), "A", "\0", "\ud800", {}, [], 5, null]
const types = ["image/png", "image/", "\n", "x".repeat(1 << 20), 5]
const codes = new Set()
for (let i = 0; i < 20; i++) for (const data of bad) for (const mimeType of types) codes.add(refused(() => image({ data, mimeType })))
for (const handle of ["out_", "out_" + "x".repeat(1 << 20), "out_cm_1_../x", "out_cm_1_"]) codes.add(refused(() => audio(handle)))
return [...codes]
