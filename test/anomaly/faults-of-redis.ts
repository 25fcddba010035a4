/** The faults of Redis behind the bridge, injected into the connection between the two. */
import { armShut, type TcpFault } from '../support/fault-proxy.ts'
import { commandOf } from '../support/resp.ts'
import { DEADLINE_MS } from './modes.ts'
import type { Anomaly } from './scenario.ts'

/** Replaces the command by a script that only returns a reply, so that replies on the connection keep their order. */
const answers = (name: string, script: string, ...args: readonly string[]): Anomaly => ({
  name,
  arm: ({ redis }, when) => redis.arm({ instead: commandOf('EVAL', script, '0', ...args) }, when),
})

const says = (error: string): Anomaly => answers(`says ${error}`, 'return redis.error_reply(ARGV[1])', error)

/** Breaks the connection instead of sending the command. Earlier commands on it may have been executed, and lose their replies too. */
const breaks = (name: string, request: TcpFault['request'], rest: Partial<Anomaly> = {}): Anomaly => ({
  name,
  arrives: true,
  arm: ({ redis }, when) => redis.arm({ request: request! }, when),
  ...rest,
})

const spoils = (name: string, reply: TcpFault['reply'], rest: Partial<Anomaly> = {}): Anomaly => ({
  name,
  arrives: true,
  arm: ({ redis }, when) => redis.arm({ reply: reply! }, when),
  ...rest,
})

/** The begin of the first reply. No reply is this short, so none of the replies that Redis sends together arrives whole. */
const partOf = (bytes: Buffer): Buffer => bytes.subarray(0, 3)

const typical = { isTypical: true } as const

/** Faults that affect all commands under way on the connection. */
const CONNECTION_FAULTS: readonly Anomaly[] = [
  { name: 'refuses connections', arrives: true, arm: ({ redis }, when) => armShut(redis, when) },
  {
    name: 'freezes, and thaws after the deadline',
    arrives: true,
    answersLate: true,
    arm: ({ redis }, when) =>
      redis.arm(
        {
          reply: (client, bytes) =>
            new Promise(resolve =>
              setTimeout(() => {
                client.write(bytes)
                resolve()
              }, DEADLINE_MS + 100),
            ),
        },
        when,
      ),
  },
  breaks('closes the connection', client => client.end()),
  breaks('resets the connection', client => client.resetAndDestroy(), typical),
  spoils('executes the command, then resets the connection', client => void client.resetAndDestroy()),
  spoils('closes the connection mid-reply', (client, bytes) => void client.end(partOf(bytes))),
  spoils('resets the connection mid-reply', (client, bytes) => {
    client.write(partOf(bytes), () => client.resetAndDestroy())
  }),
  spoils(
    'sends its reply slower than the deadline',
    async (client, bytes) => {
      for (let sent = 0; sent < bytes.length; sent += 1) {
        await new Promise(resolve => setTimeout(resolve, (2 * DEADLINE_MS) / bytes.length))
        client.write(bytes.subarray(sent, sent + 1))
      }
    },
    { answersLate: true },
  ),
  spoils('answers in another protocol', client => void client.end('HTTP/1.1 400 Bad Request\r\n\r\n')),
]

const REPLY_FAULTS: readonly Anomaly[] = [
  says('LOADING Redis is loading the dataset in memory'),
  says("MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'."),
  says("READONLY You can't write against a read only replica."),
  says("OOM command not allowed when used memory > 'maxmemory'."),
  says('MISCONF Redis is configured to save RDB snapshots, but it is unable to persist to disk.'),
  says('BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.'),
  says('NOSCRIPT No matching script. Please use EVAL.'),
  says('ERR Error running script: Script killed by user with SCRIPT KILL.'),
  says('NOAUTH Authentication required.'),
  says("NOPERM User default has no permissions to run the 'evalsha' command"),
  answers('answers nil', 'return false'),
  answers('answers an empty list', 'return {}'),
  answers('answers a number', 'return 1'),
]

export const REDIS_FAULTS = [...CONNECTION_FAULTS, ...REPLY_FAULTS]
