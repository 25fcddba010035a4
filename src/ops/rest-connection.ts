/** Commands over the REST protocol of Upstash. Each command, pipeline or transaction is one HTTP request, with a deadline. */

import type { AdminConnection, Command, Reply } from '../store/admin-connection.ts'
import { createRestConnection, type RestAnswer, RestError } from '../store/rest.ts'
import type { AdminError } from './admin-error.ts'
import type { fetchFromStore } from './bounded-reply.ts'

export const DEADLINE_MS = 5000

/** The most commands in one request, so that it stays far below Upstash's limit of 10 MB. */
export const MAX_AT_ONCE = 1000

/**
 * Runs commands.
 * @param failureOf describes a failed request
 * @param send default: `fetch`, whose reply is read whatever its size
 * @throws GatewayError ERR_CONFIG_INVALID if the URL or the token is not valid
 */
export function restConnection(
  { url, token }: { url: string; token: string },
  failureOf: (error: unknown) => AdminError,
  send: typeof fetchFromStore = fetch,
): Pick<AdminConnection, 'run' | 'runEach' | 'transact'> {
  const sendCommands = createRestConnection(url, token, fetchInOrder(send))

  async function repliesTo(commands: readonly Command[], isTransaction = false): Promise<Reply[]> {
    try {
      const answers = await sendCommands(commands, AbortSignal.timeout(DEADLINE_MS), isTransaction)
      return repliesIn(answers)
    } catch (error) {
      throw failureOf(error)
    }
  }

  return {
    async run<T extends Reply>(...command: Command) {
      const [reply] = await repliesTo([command])
      return reply as T
    },
    async runEach<T extends Reply>(commands: readonly Command[]) {
      const replies: Reply[] = []
      for (let from = 0; from < commands.length; from += MAX_AT_ONCE)
        replies.push(...(await repliesTo(commands.slice(from, from + MAX_AT_ONCE))))
      return replies as T[]
    },
    transact: commands => repliesTo(commands, true),
  }
}

/** @throws RestError whose status is 207 (Multi-Status) if only some of the commands have failed */
function repliesIn(answers: readonly RestAnswer[]): Reply[] {
  const errors = answers.flatMap(({ error }) => error ?? [])
  const [first] = errors
  if (first !== undefined) throw new RestError(errors.length < answers.length ? 207 : 200, first)
  return answers.map(({ result }) => result as Reply)
}

/**
 * A global database of Upstash reads from the nearest replica, which may not have the last write yet. With the token of its last
 * reply, it waits until the replica has.
 */
function fetchInOrder(send: typeof fetchFromStore): Parameters<typeof createRestConnection>[2] {
  const name = 'upstash-sync-token'
  let token: string | null = null
  return async (url, { headers, ...init }) => {
    const response = await send(url, { ...init, headers: { ...headers, ...(token && { [name]: token }) } })
    token = response.headers.get(name) ?? token
    return response
  }
}
