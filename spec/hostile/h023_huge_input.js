return await tools.echo({ s: "x".repeat(17 << 20) }).then(() => "sent", () => "refused")
