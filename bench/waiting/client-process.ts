/** A process that makes many calls at once with `sluicegate/client`, and knows nothing of the limit before. */
import { createClient } from '../../src/client/index.ts'
import { handleCommands, reportReady } from '../child.ts'

export interface CallsCommand {
  url: string
  calls: number
}

export interface CallsResult {
  /** Replies that the client has repeated. */
  refused: number
}

handleCommands<CallsCommand>(async ({ url, calls }) => {
  const result: CallsResult = { refused: 0 }
  const get = createClient({
    async fetch(...args) {
      const reply = await fetch(...args)
      if (reply.status === 429) result.refused += 1
      return reply
    },
  })
  const call = async () => {
    const reply = await get(url)
    await reply.arrayBuffer()
    if (!reply.ok) throw new Error(`A call ended with status ${reply.status}.`)
  }
  await Promise.all(Array.from({ length: calls }, call))
  return result
})
reportReady({})
