throw Object.create(null)
