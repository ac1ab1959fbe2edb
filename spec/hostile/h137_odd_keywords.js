return [typeof this, (() => { try { return eval("new.target") } catch (e) { return e.name } })(), (() => { try { return eval("super.x") } catch (e) { return e.name } })()]
