/**
 * Administration over the REST protocol of Upstash. Each command, pipeline or transaction is one HTTP request, with a deadline, and sees
 * the writes of the request before it.
 */

import type { AdminConnection, Command, Reply } from '../store/admin-connection.ts'
import { upstashStore } from '../store/upstash.ts'
import { type RestAnswer, RestError, upstashClient } from '../store/upstash-client.ts'
import { AdminError } from './admin-error.ts'
import { describeFailure, failureIfNotSent, howToTest, nextStepFor } from './store-failure.ts'

export interface UpstashConnectionOptions {
  url: string
  token: string
  /** The environment of the keys that decisions access. */
  environment?: string | undefined
  /** Default: true. */
  keyLocking?: boolean
  /** Default: false. */
  cluster?: boolean
}

const DEADLINE_MS = 5000

/** The most commands in one request, so that it stays far below Upstash's limit of 10 MB. */
export const MAX_AT_ONCE = 1000

/**
 * With what people at the command line need: what to do about errors.
 * @throws GatewayError ERR_CONFIG_INVALID if the URL or the token is not valid
 */
export function upstashConnection(options: UpstashConnectionOptions): AdminConnection {
  const { url, token, environment, keyLocking = true, cluster = false } = options
  const failureOf = (error: unknown) => {
    const [what, nextStep] = describeFailure(error, { deadlineMs: DEADLINE_MS, test: howToTest(url) })
    const message = `The store at ${new URL(url).host} ${what}`
    return new AdminError('store', message, nextStep, failureIfNotSent(what))
  }
  return {
    ...commandsThrough({ url, token }, failureOf),
    decisions: upstashStore({ url, token, deadlineMs: DEADLINE_MS, keyLocking, cluster, environment }),
    nextStepFor: message => nextStepFor(message, url),
  }
}

/**
 * Runs commands.
 * @param failureOf describes a failed request
 * @throws GatewayError ERR_CONFIG_INVALID if the URL or the token is not valid
 */
export function commandsThrough(
  at: { url: string; token: string },
  failureOf: (error: unknown) => AdminError,
): Pick<AdminConnection, 'run' | 'runEach' | 'transact'> {
  const send = upstashClient(at, { readYourWrites: true })

  async function repliesTo(commands: readonly Command[], isTransaction = false): Promise<Reply[]> {
    try {
      return repliesIn(await send(commands, AbortSignal.timeout(DEADLINE_MS), isTransaction))
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

/** @throws RestError if one of the commands has failed */
function repliesIn(answers: readonly RestAnswer[]): Reply[] {
  const errors = answers.flatMap(({ error }) => error ?? [])
  const [first] = errors
  if (first !== undefined) throw new RestError(first, errors.length < answers.length)
  return answers.map(({ result }) => result as Reply)
}
