const raw = JSON.rawJSON?.("1e999999") ?? { toJSON: () => 1e999 }
json({ raw }); text({ raw })
await yield_control("named")
return [typeof JSON.rawJSON, typeof JSON.isRawJSON, raw, await tools.echo({ raw })]
