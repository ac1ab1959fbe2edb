// OpenAI's Agents SDK with a gateway: its agent loop makes the calls of cells. Prints what happened.
import { Agent, OpenAIChatCompletionsModel, OpenAIResponsesModel, run, setTracingDisabled, tool } from '@openai/agents'
import OpenAI from 'openai'
import { z } from 'zod'

const [address, token] = process.argv.slice(2)
const WORDS = { 1: 'first', 2: 'second', 3: 'third' }
setTracingDisabled(true)
const client = new OpenAI({ baseURL: `${address}/v1`, apiKey: token, maxRetries: 0 })
const models = { chat: new OpenAIChatCompletionsModel(client, 'openclaw'), responses: new OpenAIResponsesModel(client, 'openclaw') }
const seen = []
for (const [name, model] of Object.entries(models)) {
  for (const stream of [false, true]) {
    const looked = []
    const execute = ({ n }) => (looked.push(n), WORDS[n])
    const look = tool({ name: 'look', description: 'Looks.', parameters: z.object({ n: z.number() }), execute })
    const agent = new Agent({ name: 'looker', model, tools: [look] })
    const result = await run(agent, 'Look three times.', { stream })
    if (stream) await result.completed
    seen.push({ name: `${name} ${stream ? 'streamed' : 'whole'}`, text: result.finalOutput, rounds: [looked.sort()] })
  }
}
console.log(JSON.stringify(seen))
