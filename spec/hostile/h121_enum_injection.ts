enum E { "a\"]=text('x');//" = 1, "b\n" = 2, __proto__ = 3 }
return Object.keys(E).length
