return (await tools.thenable()).ok
