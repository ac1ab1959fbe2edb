return await tools.approve({}).then(() => "ran", (e) => /denied/.test(e.message) ? "denied" : e.message)
