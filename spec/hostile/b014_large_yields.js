const s = "y".repeat(15 << 20)
return (await Promise.all(Array.from({ length: 10 }, () => yield_control(s).then(() => "sent", (e) => e.code)))).filter((e) => e === "value_too_large").length
