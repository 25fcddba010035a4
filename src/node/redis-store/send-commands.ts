/** Sends commands to Redis together, and says of each what became of it. */
import { type CallFate, GatewayError } from '../../errors.ts'
import { type Deadline, timeoutError } from '../../store/deadline.ts'
import { codeText, refusal, unreachableError } from '../../store/refusal.ts'
import type { CommandAnswer } from '../../store/store-on.ts'
import { Departure } from '../rest-bridge/departure.ts'
import type { FoundRedis } from '../rest-bridge/found-redis.ts'
import { ErrorReply, RedisUnavailable } from '../rest-bridge/redis-server.ts'

type Commands = readonly (readonly (string | number)[])[]

/**
 * Sends all commands at once, in one write if the socket takes them. Commands that have not left at the deadline are called off. No
 * command is sent twice, except to the node to which a cluster has redirected it.
 * @returns the answers in order
 * @throws GatewayError if none of the commands was answered
 */
export function sendCommands(
  redis: FoundRedis,
  commands: Commands,
  deadline: Deadline,
): Promise<CommandAnswer[]> {
  const failure = deadline.failure()
  if (failure) return Promise.reject(calledOff(failure, 'not-sent'))
  return new Promise((resolve, reject) => {
    const answers: CommandAnswer[] = new Array(commands.length)
    const departures = commands.map(() => new Departure())
    let waiting = commands.length

    function note(i: number, answer: CommandAnswer): void {
      // After the deadline, answers are late.
      if (answers[i]) return
      answers[i] = answer
      waiting -= 1
      if (waiting > 0) return
      if (answers.every(answer => answer instanceof GatewayError)) reject(failureOfAll(answers))
      else resolve(answers)
    }

    deadline.signal.addEventListener('abort', () => {
      const failure = deadline.failure()!
      for (const [i, departure] of departures.entries()) {
        if (answers[i]) continue
        departure.callOff()
        note(i, calledOff(failure, fateOf(departure)))
      }
    })
    for (const [i, command] of commands.entries()) {
      const departure = departures[i]!
      redis.dispatch(command.map(String), departure).then(
        result => note(i, { result }),
        error => note(i, answerTo(error, departure)),
      )
    }
  })
}

const calledOff = ({ code, message }: GatewayError, fate: CallFate) =>
  new GatewayError(code, message, { fate })

const fateOf = (departure: Departure): CallFate => (departure.hasLeft ? 'may-have-run' : 'not-sent')

/** What became of a command without a reply. */
function answerTo(error: unknown, departure: Departure): CommandAnswer {
  // Also if a cluster has redirected it to a node that it does not have: it did not run.
  if (error instanceof ErrorReply) return { error: error.message }
  const fate = fateOf(departure)
  const { reason, cause } = error as Partial<RedisUnavailable>
  if (error instanceof RedisUnavailable && reason === 'timeout')
    return Object.assign(timeoutError(), { fate })
  // Redis has refused the connection, for example because of the password.
  if (cause instanceof ErrorReply) return refusal(cause.message, REMEDIES)
  return unreachableError(codeText(cause ?? error), { fate })
}

/** The failure of all commands is that of a command that may have run, if there is one. */
function failureOfAll(answers: readonly CommandAnswer[]): GatewayError {
  const failures = answers as readonly GatewayError[]
  return failures.find(({ fate }) => fate === 'may-have-run') ?? failures[0]!
}

export const REMEDIES = {
  credentials: 'Check the user and the password in the URL of Redis, or of the client.',
  permission: 'its Redis user lacks a permission',
}
