// The Vercel AI SDK: its MCP client, its agent loop, a model at the given address. Prints the model's last message.
import { createMCPClient } from '@ai-sdk/mcp'
import { Experimental_StdioMCPTransport as StdioTransport } from '@ai-sdk/mcp/mcp-stdio'
import { createOpenAICompatible } from '@ai-sdk/openai-compatible'
import * as ai from 'ai'

const [model, target, ...args] = process.argv.slice(2)
const http = { type: 'http', url: target, headers: { Authorization: `Bearer ${process.env.TOKEN}` } }
const transport = target.startsWith('http') ? http : new StdioTransport({ command: target, args, env: process.env })
const client = await createMCPClient({ transport })
try {
  const provider = createOpenAICompatible({ name: 'loopback', baseURL: model, apiKey: 'none' })
  const tools = await client.tools()
  const stopWhen = (ai.stepCountIs ?? ai.isStepCount)(4)
  const { text } = await ai.generateText({ model: provider('scripted'), tools, prompt: 'Run the cell.', stopWhen })
  console.log(text)
} finally {
  await client.close()
}
