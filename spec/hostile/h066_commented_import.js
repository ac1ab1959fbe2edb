return await import /* a */ (// b
"fs")
