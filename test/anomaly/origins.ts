/** Faults of the origin: only the caller of the failed request gets an error, and the request stays counted. */
import { afterAll, describe, expect, it } from 'vitest'
import { writeTable } from '../../docs/programs/reliability/tables.ts'
import { armShut } from '../support/fault-proxy.ts'
import { anonymous, askAs, type Reply, undisturbed } from './callers.ts'
import { ORIGIN_FAULTS } from './faults-of-origin.ts'
import { spentBy } from './judge.ts'
import type { Lanes } from './lane.ts'
import { CASE_TIMEOUT_MS, IS_WHOLE } from './matrix.ts'
import { LIMIT, type Mode } from './modes.ts'
import { untilDecided } from './scenario.ts'

const MODE: Mode = 'open'

export function describeOrigins(lanes: () => Lanes): void {
  const found = new Map<string, string[]>()

  describe('an origin that', { concurrent: true, timeout: CASE_TIMEOUT_MS }, () => {
    it.each(ORIGIN_FAULTS)('$name affects one caller only ($status), who is charged', async origin => {
      await lanes().use(async lane => {
        const { owner, replies } = await undisturbed(async () => {
          await untilDecided(lane, MODE)
          const caller = anonymous(lane)
          const armed = origin.fault
            ? lane.originProxy.arm(origin.fault, n => n === 1)
            : armShut(lane.originProxy, n => n === 1)
          await armed.before?.()
          await askAs(lane, caller, MODE).finally(armed.disarm)
          for (let i = 0; i < LIMIT; i++) await askAs(lane, caller, MODE)
          return caller
        })
        expect(replies.map(({ mark }) => mark)).toEqual(replies.map(() => undefined))
        const [{ status, isBroken, ms }, ...rest] = replies as [Reply, ...Reply[]]
        expect({ status, isBroken }).toEqual({ status: origin.status, isBroken: origin.isBroken })
        expect(rest.map(({ status }) => status)).toEqual([...Array(LIMIT - 1).fill(200), 429])
        expect(await spentBy(lane, owner!, MODE)).toBe(LIMIT)
        found.set(origin.name, [
          origin.name,
          `\`${status}\`${isBroken ? ', cut off' : ''}`,
          `${Math.round(ms)} ms`,
        ])
      })
    })
  })

  afterAll(() => {
    if (!IS_WHOLE || found.size < ORIGIN_FAULTS.length) return
    const rows = ORIGIN_FAULTS.map(({ name }) => found.get(name)!)
    writeTable('origin', { head: ['the origin …', 'its caller sees', 'after'], rows })
  })
}
