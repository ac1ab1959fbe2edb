return await tools.echo(Array(4100).fill(Array(1000).fill([0]))).then(() => "sent", (e) => e.code)
