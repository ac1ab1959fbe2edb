return r\u0065quire("fs")
