await tools.fail({})
