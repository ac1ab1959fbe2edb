return Array.from({ length: 2 ** 53 - 1 }).length
