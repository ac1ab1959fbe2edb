text("\u001b[2J\u0000\u0007")
return "\u001b]0;owned\u0007"
