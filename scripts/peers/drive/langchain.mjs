// LangChain's agent with a gateway: it makes the calls of cells. Prints what happened.
import { ChatAnthropic } from '@langchain/anthropic'
import { BaseLanguageModel } from '@langchain/core/language_models/base'
import { ChatOpenAI } from '@langchain/openai'
import { createAgent, tool } from 'langchain'
import { z } from 'zod'

const [address, token] = process.argv.slice(2)
const WORDS = { 1: 'first', 2: 'second', 3: 'third' }
const seen = []
// LangChain would download a tokenizer to count what the server counted already, and retry for minutes without a network.
BaseLanguageModel.prototype.getNumTokens = async () => 1
for (const streaming of [false, true]) {
  const common = { model: 'openclaw', apiKey: token, maxRetries: 0, streaming }
  const configuration = { baseURL: `${address}/v1` }
  const models = {
    chat: new ChatOpenAI({ ...common, configuration, useResponsesApi: false }),
    responses: new ChatOpenAI({ ...common, configuration, useResponsesApi: true }),
    messages: new ChatAnthropic({ ...common, anthropicApiUrl: address }),
  }
  for (const [name, model] of Object.entries(models)) {
    const looked = []
    const run = ({ n }) => (looked.push(n), WORDS[n])
    const look = tool(run, { name: 'look', description: 'Looks.', schema: z.object({ n: z.number() }) })
    const agent = createAgent({ model, tools: [look] })
    const request = { messages: [{ role: 'user', content: 'Look three times.' }] }
    let last
    if (streaming) for await (const state of await agent.stream(request, { streamMode: 'values' })) last = state
    else last = await agent.invoke(request)
    seen.push({ name: `${name} ${streaming ? 'streamed' : 'whole'}`, text: last.messages.at(-1).text, rounds: [looked.sort()] })
  }
}
console.log(JSON.stringify(seen))
