/**
 * Measures which steps of a decision take how much time of a busy Redis: scripts with more and more of its steps, with the keys and the
 * arguments of the decision. The rest is the Lua of its rules.
 */
import { createHash } from 'node:crypto'
import type { Command, Reply } from '../../src/node/rest-bridge/redis-connection.ts'
import { sluice } from '../contenders.ts'
import { type Cell, measured } from '../figures.ts'
import { costOf, inHotLoop } from '../hot-loop.ts'
import { inRounds } from '../measure.ts'
import type { Findings } from '../report.ts'
import { newCallers, type TestBed } from '../test-bed.ts'
import { straightTo } from '../transport.ts'

const ROUNDS = 2
const CALLERS = 64
const REPEATS = 20

/** Which two of the keys are written does not matter. */
const STEPS = {
  'the call': '',
  TIME: "redis.call('TIME')",
  'MGET of two states and of the two records of the API key': "local all=redis.call('MGET',unpack(KEYS))",
  'two SETEX': "for i=1,2 do redis.call('SETEX',KEYS[i],3600,all[i]or'')end",
}

export async function profile(bed: TestBed): Promise<Findings> {
  const { commands, reply } = await decisionsOf(bed)
  const scripts: [step: string, text: string][] = []
  for (const [step, text] of Object.entries(STEPS))
    scripts.push([step, `${scripts.at(-1)?.[1] ?? ''}\n${text}`])
  scripts.push(['the reply', `${scripts.at(-1)![1]}\nreturn ${luaOf(reply)}`])
  const tasks = scripts.map(([step, text]) => [step, () => timeOf(bed, text, commands)] as const)
  const decide = async () =>
    inHotLoop(bed, {
      make: transport => sluice(transport, 'admits all', 'fixed-window'),
      callers: await newCallers(CALLERS, bed),
      expected: 'allowed',
    })
  const rounds: Record<string, number[]> = await inRounds(
    ROUNDS,
    Object.fromEntries([...tasks, ['Lua', decide] as const]),
  )
  const steps = Object.entries(rounds)
  const rows = steps.map(([step, sums], i): Cell[] => {
    const before = steps[i - 1]?.[1]
    const what = step === 'Lua' ? 'Lua of six rules and the key' : step
    return [what, measured(sums.map((sum, round) => sum - (before?.[round] ?? 0))), measured(sums)]
  })
  return {
    tables: [
      {
        title: 'Profile: a decision about six fixed-window rules',
        head: ['step', 'µs', 'up to here, µs'],
        rows,
      },
    ],
    rounds: [{ title: 'Profile, µs in Redis up to a step', columns: rounds }],
    notes: [
      'Profile: allowed, while Redis is busy. Each step is the difference of two scripts, one with it and one without.',
    ],
  }
}

/** The commands of a decision about each caller, and the reply to one. */
async function decisionsOf(bed: TestBed): Promise<{ commands: Command[]; reply: Reply }> {
  const sent: Command[] = []
  const decide = sluice(straightTo(bed.redis, sent), 'admits all', 'fixed-window')
  const callers = await newCallers(CALLERS, bed)
  for (const caller of [...callers, ...callers]) await decide(caller)
  const commands = sent.slice(-CALLERS)
  return { commands, reply: await bed.redis.send(commands[0]!) }
}

async function timeOf(bed: TestBed, text: string, commands: readonly Command[]): Promise<number> {
  await bed.redis.send(['SCRIPT', 'LOAD', text])
  const sha1 = createHash('sha1').update(text).digest('hex')
  const calls = commands.map(([, , ...rest]) => ['EVALSHA', sha1, ...rest])
  const time = await costOf(bed, async () => {
    for (let i = 0; i < REPEATS; i++) await Promise.all(calls.map(call => bed.redis.send(call)))
  })
  return time / (REPEATS * calls.length)
}

function luaOf(reply: Reply): string {
  if (Array.isArray(reply)) return `{${reply.map(luaOf)}}`
  return typeof reply === 'number' || typeof reply === 'bigint'
    ? String(reply)
    : JSON.stringify(String(reply))
}
