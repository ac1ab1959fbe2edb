let deep = []
for (let i = 0; i < 5000; i++) deep = [deep]
return await tools.echo({ deep }).then(() => "sent", () => "refused")
