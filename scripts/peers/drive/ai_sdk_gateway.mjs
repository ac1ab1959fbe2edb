// The Vercel AI SDK with a gateway: its agent loop makes the calls of cells. Prints what happened.
import { createAnthropic } from '@ai-sdk/anthropic'
import { createOpenAI } from '@ai-sdk/openai'
import * as ai from 'ai'
import { z } from 'zod'

const [address, token] = process.argv.slice(2)
const WORDS = { 1: 'first', 2: 'second', 3: 'third' }
const gpt = createOpenAI({ baseURL: `${address}/v1`, apiKey: token })
const claude = createAnthropic({ baseURL: `${address}/v1`, apiKey: token })
const models = { chat: gpt.chat('openclaw'), responses: gpt.responses('openclaw'), messages: claude('openclaw') }
const seen = []
for (const [name, model] of Object.entries(models)) {
  for (const stream of [false, true]) {
    const looked = []
    const execute = ({ n }) => (looked.push(n), WORDS[n])
    const tools = { look: ai.tool({ description: 'Looks.', inputSchema: z.object({ n: z.number() }), execute }) }
    const stopWhen = (ai.stepCountIs ?? ai.isStepCount)(6)
    const request = { model, tools, prompt: 'Look three times.', stopWhen, maxRetries: 0 }
    const text = stream ? await ai.streamText(request).text : (await ai.generateText(request)).text
    seen.push({ name: `${name} ${stream ? 'streamed' : 'whole'}`, text, rounds: [looked.sort()] })
  }
}
console.log(JSON.stringify(seen))
