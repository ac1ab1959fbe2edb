for (;;) { (() => { break })() }
