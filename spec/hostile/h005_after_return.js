setTimeout(() => tools.counter(), 20)
return "early"
