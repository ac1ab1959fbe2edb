return /[/.test("}")
