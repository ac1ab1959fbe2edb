const d = (...a: any[]) => { text("ran") }
@d class A {}
return 1
