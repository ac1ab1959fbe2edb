return new RegExp("(?:a{1,65535}){1,65535}".repeat(200)).source.length
