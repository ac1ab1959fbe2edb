return { then() {} }
