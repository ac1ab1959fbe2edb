globalThis.__left = "CELL_ONE"
Object.prototype.__left = "CELL_ONE"
return typeof globalThis.__left
