for (;;) try { (function f() { f() })() } catch { for (let i = 0; i < 1e9; i++); }
