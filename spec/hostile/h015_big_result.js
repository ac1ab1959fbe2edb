return await tools.big({ bytes: 20 << 20 }).then((r) => r.length, () => "refused")
