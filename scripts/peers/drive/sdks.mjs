// The JavaScript SDKs of OpenAI and Anthropic with a gateway: tools that cells call, streamed and not. Prints what happened.
import Anthropic from '@anthropic-ai/sdk'
import OpenAI from 'openai'

const [address, token] = process.argv.slice(2)
const WORDS = { 1: 'first', 2: 'second', 3: 'third' }
const SCHEMA = { type: 'object', properties: { n: { type: 'integer' } }, required: ['n'] }
const PROMPT = 'Look three times.'
const ROUNDS = 6
const seen = []

async function looking(name, round) {
  const rounds = []
  const answer = (calls) => {
    rounds.push(calls.map(({ n }) => n))
    return calls.map(({ n }) => WORDS[n])
  }
  for (let at = 0; at < ROUNDS; at++) {
    const text = await round(answer)
    if (text !== undefined) return seen.push({ name, text, rounds })
  }
  seen.push({ name, text: 'too many rounds', rounds })
}

const gpt = new OpenAI({ baseURL: `${address}/v1`, apiKey: token, maxRetries: 0 })
const claude = new Anthropic({ baseURL: address, apiKey: token, maxRetries: 0 })

async function chat(stream) {
  const tools = [{ type: 'function', function: { name: 'look', description: 'Looks.', parameters: SCHEMA } }]
  const messages = [{ role: 'user', content: PROMPT }]
  await looking(`chat ${stream ? 'streamed' : 'whole'}`, async (answer) => {
    const request = { model: 'openclaw', messages, tools }
    const message = stream
      ? await gpt.chat.completions.stream(request).finalMessage()
      : (await gpt.chat.completions.create(request)).choices[0].message
    if (!message.tool_calls?.length) return message.content
    messages.push(message)
    const words = answer(message.tool_calls.map((call) => JSON.parse(call.function.arguments)))
    message.tool_calls.forEach((call, at) => messages.push({ role: 'tool', tool_call_id: call.id, content: words[at] }))
  })
}

async function responses(stream, chained) {
  const tools = [{ type: 'function', name: 'look', description: 'Looks.', parameters: SCHEMA, strict: false }]
  let input = [{ role: 'user', content: PROMPT }]
  let previous
  await looking(`responses ${stream ? 'streamed' : 'whole'}${chained ? ' chained' : ''}`, async (answer) => {
    const request = { model: 'openclaw', input, tools, previous_response_id: previous }
    const response = stream ? await gpt.responses.stream(request).finalResponse() : await gpt.responses.create(request)
    const calls = response.output.filter((item) => item.type === 'function_call')
    if (!calls.length) return response.output_text
    const words = answer(calls.map((call) => JSON.parse(call.arguments)))
    const results = calls.map((call, at) => ({ type: 'function_call_output', call_id: call.call_id, output: words[at] }))
    if (chained) [input, previous] = [results, response.id]
    else input = [...input, ...response.output.map(({ parsed_arguments, ...item }) => item), ...results]
  })
}

async function messages(stream) {
  const tools = [{ name: 'look', description: 'Looks.', input_schema: SCHEMA }]
  const history = [{ role: 'user', content: PROMPT }]
  await looking(`messages ${stream ? 'streamed' : 'whole'}`, async (answer) => {
    const request = { model: 'openclaw', max_tokens: 1000, messages: history, tools }
    const message = stream ? await claude.messages.stream(request).finalMessage() : await claude.messages.create(request)
    const calls = message.content.filter((block) => block.type === 'tool_use')
    if (!calls.length) return message.content.map((block) => block.text ?? '').join('')
    history.push({ role: 'assistant', content: message.content })
    const words = answer(calls.map((call) => call.input))
    const results = calls.map((call, at) => ({ type: 'tool_result', tool_use_id: call.id, content: words[at] }))
    history.push({ role: 'user', content: results })
  })
}

for (const stream of [false, true]) await chat(stream)
for (const chained of [false, true]) for (const stream of [false, true]) await responses(stream, chained)
for (const stream of [false, true]) await messages(stream)
console.log(JSON.stringify(seen))
