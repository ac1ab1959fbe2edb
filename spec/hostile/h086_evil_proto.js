return [(await tools.call("plugin:evil:__proto__", {})).ran, ({}).ran, Object.getPrototypeOf(tools)]
