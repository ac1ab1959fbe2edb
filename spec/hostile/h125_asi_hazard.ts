let x = 1
interface A {}
(() => { x++ })()
let y = x as any
;[1].forEach((z) => { y += z })
type B = 1
;`t`
return [x, y]
