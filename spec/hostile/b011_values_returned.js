return Array(2000).fill(Array(1000).fill([]))
