/** Setting live switches: with an operator and an end, and at the same time as other operators. */
import { expect, it } from 'vitest'
import { killLimits, readSwitches, resetRule, restoreLimits, switchRule } from '../../src/ops/switches.ts'
import { useAdmin } from '../support/admin.ts'
import { describeOnRedis } from '../support/redis.ts'

const KEY = 'sluice:{switches}'
const OPS = { at: new Date('2026-11-21T06:00:00.000Z'), by: 'ops' }

describeOnRedis('switches', start => {
  const admin = useAdmin(start)
  const exists = () => admin.send('EXISTS', KEY)

  it('are stored with their operator and time until they are reset, and then leave nothing behind', async () => {
    const until = new Date('2030-01-01T00:00:00.000Z')
    await killLimits(admin.store, { ...OPS, until, reason: 'incident' })
    await switchRule(admin.store, 'minute', { ...OPS, mode: 'shadow' })
    expect(await readSwitches(admin.store)).toEqual({
      kill: { ...OPS, until, reason: 'incident' },
      rules: new Map([['minute', { ...OPS, mode: 'shadow' }]]),
    })
    expect(await admin.send('TTL', KEY)).toBe(-1)
    await restoreLimits(admin.store)
    await resetRule(admin.store, 'minute')
    expect(await exists()).toBe(0)
  })

  it('of a share keep the mode of an earlier switch, unless that switch has ended', async () => {
    await switchRule(admin.store, 'minute', { ...OPS, mode: 'enforce' })
    const half = await switchRule(admin.store, 'minute', { ...OPS, share: 0.5 })
    expect(half.rules.get('minute')).toEqual({ ...OPS, mode: 'enforce', share: 0.5 })
    const whole = await switchRule(admin.store, 'minute', { ...OPS, mode: 'enforce', until: new Date(1) })
    expect(whole.rules.get('minute')).toEqual({ ...OPS, mode: 'enforce', until: new Date(1) })
    const alone = await switchRule(admin.store, 'minute', { ...OPS, share: 0.5 })
    expect(alone.rules.get('minute')).toEqual({ ...OPS, share: 0.5 })
  })

  it('that are not set can be reset, and nothing is written', async () => {
    const unchanged = { switches: { rules: new Map() }, isChanged: false }
    expect(await restoreLimits(admin.store)).toEqual(unchanged)
    expect(await resetRule(admin.store, 'minute')).toEqual(unchanged)
    expect(await exists()).toBe(0)
  })

  it('that are set at the same time are all kept', async () => {
    const names = ['a', 'b', 'c', 'd', 'constructor', '__proto__']
    await Promise.all(names.map(name => switchRule(admin.store, name, { ...OPS, mode: 'off' })))
    expect([...(await readSwitches(admin.store)).rules.keys()].sort()).toEqual([...names].sort())
  })

  it('apply to one environment only', async () => {
    const staging = admin.storeOf({ environment: 'staging' })
    await killLimits(staging, OPS)
    expect(await readSwitches(admin.store)).toEqual({ rules: new Map() })
    expect((await readSwitches(staging)).kill).toEqual(OPS)
  })
})
