try { await tools.fail({ message: "m" }) } catch (e) {
  const all = []
  for (let o = e; o; o = Object.getPrototypeOf(o)) for (const k of Reflect.ownKeys(o)) try { all.push(String(k), String(o[k])) } catch {}
  const text = all.join("|") + (await tools.fail().catch(String))
  return [/srv|secret|CANARY|\.rs/i.test(text), text.includes("fixture failure")]
}
