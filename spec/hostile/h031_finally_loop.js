try { throw 1 } finally { while (true) {} }
