Promise.reject(new Error("ignored"))
tools.fail()
return "fine"
