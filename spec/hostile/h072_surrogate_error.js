throw new Error("bad \udc00 text")
