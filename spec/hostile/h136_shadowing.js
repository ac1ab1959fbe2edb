const text = 1, tools = 2, json = 3
var console = 4
function yield_control() { return 5 }
return [text, tools, json, console, yield_control()]
