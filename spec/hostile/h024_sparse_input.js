const a = []
a[2 ** 32 - 2] = 1
return await tools.echo({ a }).then(() => "sent", () => "refused")
