tools.counter()
return "early"
