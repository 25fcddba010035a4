/** The stored text of all switches: the parser reads what the formatter writes, and ignores other content. */
import { describe, expect, it } from 'vitest'
import { dropExpired, formatSwitches, parseSwitches, type Switches } from '../../src/switches/switches.ts'

const at = new Date('2026-11-21T06:00:00.000Z')
const until = new Date('2026-11-21T07:00:00.000Z')
const NONE = { rules: new Map() }

describe('the text of the switches', () => {
  it.each<Switches>([
    NONE,
    { kill: { at, by: 'ops' }, rules: new Map() },
    { kill: { at, by: 'ö "{}"', until, reason: 'line\nanother' }, rules: new Map() },
    {
      rules: new Map([
        ['minute', { at, by: 'ops', mode: 'shadow' as const }],
        ['hour', { at, by: 'ops', until, share: 0.25 }],
        ['zendesk/day', { at, by: 'ops', mode: 'enforce' as const, share: 0, reason: 'x' }],
        ['constructor', { at, by: 'ops', mode: 'off' as const }],
        ['__proto__', { at, by: 'ops', mode: 'off' as const }],
      ]),
    },
  ])('can be read after it was written: %j', switches => {
    expect(parseSwitches(formatSwitches(switches))).toEqual(switches)
  })

  it.each([
    null,
    '',
    'x',
    '{"kill":',
    'null',
    '7',
    '"kill"',
    '[]',
    '[{"kill":{}}]',
    '{}',
    '{"kill":true}',
    '{"kill":{"by":"ops"}}',
    '{"kill":{"at":"2026-11-21T06:00:00Z"}}',
    '{"kill":{"at":"yesterday","by":"ops"}}',
    '{"kill":{"at":1763704800000,"by":"ops"}}',
    // A switch whose end cannot be read would never expire.
    '{"kill":{"at":"2026-11-21T06:00:00Z","by":"ops","until":"soon"}}',
    '{"kill":{"at":"2026-11-21T06:00:00Z","by":"ops","until":null}}',
    '{"rules":[]}',
    '{"rules":"off"}',
    '{"rules":{"minute":"off"}}',
    '{"rules":{"minute":{"at":"2026-11-21T06:00:00Z","by":"ops","mode":"Off"}}}',
    '{"rules":{"minute":{"at":"2026-11-21T06:00:00Z","by":"ops","share":"0.5"}}}',
    '{"rules":{"minute":{"at":"2026-11-21T06:00:00Z","by":"ops","share":-0.1}}}',
    '{"rules":{"minute":{"at":"2026-11-21T06:00:00Z","by":"ops","mode":"off","share":2}}}',
  ])('has no switches if it is not valid: %s', text => {
    expect(parseSwitches(text)).toEqual(NONE)
  })

  it('loses only the invalid switch', () => {
    const good = { at: at.toISOString(), by: 'ops', mode: 'off' }
    const text = JSON.stringify({ kill: 'on', rules: { minute: good, hour: { ...good, mode: 7 } } })
    expect(parseSwitches(text)).toEqual({ rules: new Map([['minute', { at, by: 'ops', mode: 'off' }]]) })
  })

  it('has no switch under the name of a property of every object, unless it was written', () => {
    const { rules } = parseSwitches('{"rules":{}}')
    for (const name of ['constructor', '__proto__', 'toString', 'hasOwnProperty']) {
      expect(rules.get(name)).toBeUndefined()
    }
  })
})

it('an expired switch has no effect', () => {
  const switches: Switches = {
    kill: { at, by: 'ops', until },
    rules: new Map([
      ['minute', { at, by: 'ops', mode: 'off', until }],
      ['hour', { at, by: 'ops', mode: 'off' }],
    ]),
  }
  expect(dropExpired(switches, until.getTime() - 1)).toEqual(switches)
  expect(dropExpired(switches, until.getTime())).toEqual({
    rules: new Map([['hour', switches.rules.get('hour')]]),
  })
})
