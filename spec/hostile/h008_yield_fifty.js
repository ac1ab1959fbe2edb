let n = 0
for (let i = 0; i < 50; i++) { await yield_control(); n++ }
return n
