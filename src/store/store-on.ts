/** What every store has in common, whatever carries its commands to Redis: the commands of calls, scripts that Redis lacks, the deadline. */
import { GatewayError } from '../errors.ts'
import { type Deadline, type DeadlineClock, startDeadline } from './deadline.ts'
import { inEnvironment, WRITE_TEST_KEY } from './keys.ts'
import type { ScriptCall, ScriptText, Store, StoreCall } from './store.ts'

type Command = readonly [name: string, ...args: (string | number)[]]

/** The answer to one command: a reply of Redis, its error, or why there is neither. */
export type CommandAnswer = { result?: unknown; error?: string | null } | GatewayError

export interface StoreOnOptions {
  /**
   * Sends commands together, once.
   * @returns their answers in order
   * @throws GatewayError if none of them was answered
   */
  send(commands: readonly Command[], deadline: Deadline): Promise<readonly CommandAnswer[]>
  /** The GatewayError for an error of Redis. */
  refusal(message: string): GatewayError
  /** The build of the script that this Redis runs. */
  textOf(call: ScriptCall): ScriptText
  /** The deadline of one call, including the second delivery after NOSCRIPT (deadline.ts). */
  deadlineMs: number
  /** Default: false. */
  cluster?: boolean | undefined
  environment?: string | undefined
  /** Tests pass their own. */
  clock?: DeadlineClock | undefined
}

/** Creates a store. A script that spends is not sent again if its reply was lost. */
export function storeOn(options: StoreOnOptions): Store {
  const { send, refusal, textOf, deadlineMs, cluster = false, environment, clock } = options
  const at = (key: string) => inEnvironment(key, environment)

  function commandFor(call: StoreCall | Ping, textBy: 'sha1' | 'source'): Command {
    if ('script' in call) {
      const { keys, args } = call
      const name = textBy === 'sha1' ? 'EVALSHA' : 'EVAL'
      return [name, textOf(call)[textBy], keys.length, ...keys.map(at), ...args]
    }
    return 'key' in call ? [call.command, at(call.key)] : [call.command]
  }

  function replyOf(answer: CommandAnswer): unknown {
    if (answer instanceof GatewayError) return answer
    return typeof answer.error === 'string' ? refusal(answer.error) : answer.result
  }

  /** Sends the calls together. Calls whose script is missing in Redis are sent again, together, with the script. */
  async function run(calls: readonly (StoreCall | Ping)[]): Promise<unknown[]> {
    const deadline = startDeadline(deadlineMs, clock)
    try {
      const bySha1 = calls.map(call => commandFor(call, 'sha1'))
      const answers = await send(bySha1, deadline)
      const replies = answers.map(replyOf)
      // These scripts were not run, so sending them again cannot spend twice.
      const missing = [...calls.keys()].filter(i => isScriptMissing(answers[i]!))
      if (missing.length > 0) {
        // The first call of each script has its source, because a source can have 650 kB, and a request at most 10 MB. The nodes of a
        // cluster do not share their scripts, so there each call has the source.
        const sent = new Set<unknown>()
        const bySource = missing.map(i => {
          const [, sha1] = bySha1[i]!
          if (sent.has(sha1) && !cluster) return bySha1[i]!
          sent.add(sha1)
          return commandFor(calls[i]!, 'source')
        })
        // If the second delivery fails, the replies of the first one remain valid.
        const repeated = await send(bySource, deadline).then(
          answers => answers.map(replyOf),
          failure => missing.map(() => failure),
        )
        for (const [n, i] of missing.entries()) replies[i] = repeated[n]
      }
      if (replies.length === 1 && replies[0] instanceof GatewayError) throw replies[0]
      return replies
    } finally {
      deadline.end()
    }
  }

  return {
    isCluster: cluster,
    run: calls => run(calls),
    ping: async () => void (await run([cluster ? { command: 'PING' } : WRITE_TEST])),
  }
}

/** A replica answers a PING. On a cluster, the owner of one key says nothing about the others. */
type Ping = { command: 'PING' } | typeof WRITE_TEST

/** Deletes what is not there, so it changes nothing. */
const WRITE_TEST = { command: 'DEL', key: WRITE_TEST_KEY } as const

const isScriptMissing = (answer: CommandAnswer) => 'error' in answer && answer.error?.startsWith('NOSCRIPT')
